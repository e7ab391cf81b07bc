"""Bodies and answers, by topic."""
