"""Functions (`acker.drpc`) whose steps Spark jobs work on."""
