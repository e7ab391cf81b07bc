"""Options of the data source, of bolts and of spouts."""
