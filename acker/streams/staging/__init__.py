"""Staged work of a batch, and how it takes effect: emitted tuples, acks, effects, results."""
