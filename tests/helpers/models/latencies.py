"""The buckets in which the scripts count latencies, in a line of Python."""

import math

from acker.ledger.outcomes.latency_histogram import PER_DOUBLING


def bucket_of(milliseconds: int) -> int:
    """The bucket that counts a latency."""
    return math.floor(math.log(milliseconds + 1) / math.log(2) * PER_DOUBLING)
