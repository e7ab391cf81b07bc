"""Topologies that are off, and topologies that only observe."""
