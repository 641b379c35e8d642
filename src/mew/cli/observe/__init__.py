"""Commands that show what happens in a space."""
