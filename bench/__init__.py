"""Measurements: each module here has a `main()` that measures one thing and prints it."""
