"""Dead letters: filtered, read in pages, replayed, discarded."""
