"""What streams keep: limits, stale rows, removal."""
