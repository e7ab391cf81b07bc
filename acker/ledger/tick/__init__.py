"""The tick: rotates the time buckets, and expires the slabs set aside."""
