"""Commands that create, start and manage spaces."""
