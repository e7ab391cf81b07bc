"""Types of columns, and when values are equal."""
