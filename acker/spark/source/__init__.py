"""The data source "acker": reading and writing streams, and reading dead letters."""
