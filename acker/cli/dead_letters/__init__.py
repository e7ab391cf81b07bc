"""Commands of dead letters: list, show, replay, discard, redrive."""
