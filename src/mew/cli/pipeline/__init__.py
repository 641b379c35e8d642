"""Commands about the pipeline."""
