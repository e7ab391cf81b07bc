"""The service: its store, its ledgers, and the functions that it calls."""
