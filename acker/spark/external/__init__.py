"""External streams in Spark: rows go to a sink of the user's with a stamp, and come back with it."""
