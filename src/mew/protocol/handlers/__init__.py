"""Handlers of commands and kinds, one module per subject."""
