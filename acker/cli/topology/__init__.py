"""Commands of topologies: their list, health, settings and activity."""
