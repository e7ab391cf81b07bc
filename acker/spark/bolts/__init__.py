"""Bolts and jobs: a function of a batch and its collector."""
