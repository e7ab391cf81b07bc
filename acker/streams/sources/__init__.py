"""Rows of spouts: kept, tracked and settled."""
