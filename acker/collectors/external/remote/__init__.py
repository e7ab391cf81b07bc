"""External rows for a service whose clients are steps in other languages.

The service keeps nothing between two calls: a client holds texts, which are sealed, and any server takes them
back. Stamps that are never committed leave nothing behind.
"""
