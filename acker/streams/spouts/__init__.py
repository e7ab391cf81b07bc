"""Rows that spouts keep until they are settled: replays, dead letters, the settler."""
