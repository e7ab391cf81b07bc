"""Rows of external streams as they travel: their stamps, where a stamp lies, and which trees are over."""
