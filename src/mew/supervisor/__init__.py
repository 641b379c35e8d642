"""Starts and stops the participants that a space runs itself."""
