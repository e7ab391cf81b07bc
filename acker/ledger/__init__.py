"""Shards: calls that take effect once, the tick, outcomes, and the client of all of it."""
