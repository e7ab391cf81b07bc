"""The ledger: calls that take effect once, the tick, outcomes, and the client."""
