"""Tables of Delta, Iceberg and databases: writes that take effect once, and rows read again by key."""
