"""Upkeep of streams: limits, stale rows, removal."""
