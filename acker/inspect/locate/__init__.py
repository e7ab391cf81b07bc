"""Positions of the tuples of a tree, and stuck rows."""
