"""Commands that join a space as a participant."""
