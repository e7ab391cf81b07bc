"""Trees in flight, and the time buckets that they are in."""
