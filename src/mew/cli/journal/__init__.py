"""Commands about journals."""
