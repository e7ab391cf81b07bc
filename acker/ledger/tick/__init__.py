"""The tick: rotates the time buckets, and expires what was set aside."""
