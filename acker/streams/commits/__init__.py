"""Commits: the work of a batch, which takes effect exactly once."""
