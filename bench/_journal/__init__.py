"""The parts of the journal's measurement."""
