"""Python functions that are called for each record, in Spark tasks."""
