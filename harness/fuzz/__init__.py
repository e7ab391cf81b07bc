"""Hostile input for everything that parses: `python -m harness.fuzz`."""
