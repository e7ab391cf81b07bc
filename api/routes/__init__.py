"""Paths, by topic. Routes are thin: what they do is in `acker`, or in plain functions of `api`."""
