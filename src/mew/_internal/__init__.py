"""Helpers shared by several packages. Not public: they may change in any version."""
