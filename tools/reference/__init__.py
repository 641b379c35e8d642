"""The reference pages of docs/, made of what the program says of itself. `python -m tools.reference` writes them."""
