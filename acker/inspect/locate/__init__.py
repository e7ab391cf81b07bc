"""Where the tuples of a tree are, and what is stuck."""
