"""The documentation as a site: docs/ and what it points at, built by Zensical. `python -m tools.site` does it."""
