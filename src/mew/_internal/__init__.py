"""Helpers that several packages share. Not public: they may change with any version."""
