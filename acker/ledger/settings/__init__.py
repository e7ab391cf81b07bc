"""Settings of a topology, and where topologies and their settings are stored."""
