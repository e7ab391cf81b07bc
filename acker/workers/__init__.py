"""Workers: steps in plain Python over streams, for lines and functions."""
