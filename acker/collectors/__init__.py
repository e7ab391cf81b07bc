"""Topology, Spout and Bolt, for any Python process."""
