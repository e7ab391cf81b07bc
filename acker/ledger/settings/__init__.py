"""Topologies and their settings, and the store of both."""
