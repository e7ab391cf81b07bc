"""Ids, slabs of trees, and the reasons for which trees fail."""
