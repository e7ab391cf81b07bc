"""Where the tuples of a tree are: in which streams, for whom, taken by which batch of which query."""
