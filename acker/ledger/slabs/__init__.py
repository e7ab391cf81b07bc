"""Slabs of trees, their spouts, and causes of fails."""
