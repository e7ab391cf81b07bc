"""Outcomes of trees for their spouts, and exact counters."""
