"""Knowledge of streaming queries: their batches, their plans, their conflicts with others."""
