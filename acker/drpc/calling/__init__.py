"""Callers of functions: their calls, written in groups, and the answers."""
