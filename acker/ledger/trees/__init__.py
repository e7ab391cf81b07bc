"""Trees in flight, and their time buckets."""
