"""Trees, their ends, and records by message id, as people look at them."""
