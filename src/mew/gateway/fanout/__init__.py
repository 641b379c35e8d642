"""Fan-out: delivers the messages of a space to its readers."""
