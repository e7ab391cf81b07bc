"""Functions of users: many calls at a time, and results that stand for undone work."""
