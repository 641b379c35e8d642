"""What several commands share: targets, input, output and errors."""
