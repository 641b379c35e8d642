"""Fan-out: delivers what a space sends to its readers."""
