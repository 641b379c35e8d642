"""What a new user sees first: a gateway, the stories of `examples/`, and what Spark makes of them. `make demo`.

Composed of `mew` and of `examples/`: no story is written here, and nothing is shown that is not so.
"""
