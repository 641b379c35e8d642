"""Code shared by several commands: targets, input, output and errors."""
