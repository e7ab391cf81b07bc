"""External segments in the store: their vectors, and the bits of the rows that were worked on."""
