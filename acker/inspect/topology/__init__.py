"""A topology as a whole: totals, history, health, graph."""
