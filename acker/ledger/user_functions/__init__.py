"""User functions: many calls at a time, and results that stand for unfinished work."""
