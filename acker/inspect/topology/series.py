"""Series from readings of the history: the differences between them, point by point.

Terms: a tree is all that comes of one record.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from acker.inspect.topology.history import COLUMNS, COUNTED, GAUGES, HEAD, Reading
from acker.ledger.outcomes import latency_histogram

Numbers = npt.NDArray[np.float64]

_HEAD = np.dtype([("version", "u1"), ("count", "u1"), ("values", "<f8", len(COLUMNS))])
_NOTHING = bytes(HEAD.size)
"""A reading of which all is zero."""


@dataclass(frozen=True, slots=True)
class Series:
    """Points, column by column; the n-th value of each is of the n-th point.

    Attributes:
        at: The end of each point, in ms.
        seconds: Its length; nan for the point before the history began.
        counts: The counts in it, by counter.
        gauges: The values at its end, by gauge.
        latencies: For each point a row of acked trees by latency bucket.
        buckets: The latency buckets (`acker.ledger.outcomes.latency_histogram`).
    """

    at: npt.NDArray[np.int64]
    seconds: Numbers
    counts: Mapping[str, Numbers]
    gauges: Mapping[str, Numbers]
    buckets: npt.NDArray[np.int64]
    latencies: Numbers

    def percentiles(self, *fractions: float) -> list[list[float | None]]:
        """For each fraction the percentile of the latency in seconds at each point; None: no ack."""
        return latency_histogram.percentiles(self.latencies, self.buckets, fractions)

    def total_percentiles(self, *fractions: float) -> list[float | None]:
        """For each fraction the percentile of the latency in seconds over all points."""
        total = self.latencies.sum(axis=0, keepdims=True)
        return [found for [found] in latency_histogram.percentiles(total, self.buckets, fractions)]


def series(readings: Sequence[Reading]) -> Series:
    """The series of readings, oldest first: a point for each after the first.

    A counter that went back (the store lost something) counts as unchanged.
    """
    at = np.array([reading.at for reading in readings], dtype=np.int64)
    values, buckets, latencies = _unpacked([reading.packed or _NOTHING for reading in readings])
    between = np.diff(latencies, axis=0)
    seconds = np.diff(at) / 1000
    if readings and readings[0].first:
        seconds[:1] = np.nan
    counts = np.diff(values[:, : len(COUNTED)], axis=0).clip(min=0)
    return Series(
        at[1:],
        seconds,
        {name: counts[:, place] for place, name in enumerate(COUNTED)},
        {name: values[1:, len(COUNTED) + place] for place, name in enumerate(GAUGES)},
        buckets,
        between.clip(min=0, out=between),
    )


def _unpacked(readings: Sequence[bytes]) -> tuple[Numbers, npt.NDArray[np.int64], Numbers]:
    """For each reading a row of its columns; the latency buckets that are used; acked trees by these."""
    # Few of the 256 are ever used, and nearly all readings use the same as the one before.
    used = [packed[HEAD.size : HEAD.size + packed[1]] for packed in readings]
    buckets = np.array(sorted(set().union(*set(used))) or [0], dtype=np.int64)
    values = np.empty((len(readings), len(COLUMNS)))
    latencies = np.zeros((len(readings), len(buckets)))
    first = 0
    for width, group in groupby(used):
        end = first + sum(1 for _ in group)
        kind = np.dtype([("head", _HEAD), ("buckets", "u1", len(width)), ("counts", "<u8", len(width))])
        rows = np.frombuffer(b"".join(readings[first:end]), kind)
        values[first:end] = rows["head"]["values"]
        latencies[first:end, np.searchsorted(buckets, np.frombuffer(width, np.uint8))] = rows["counts"]
        first = end
    return values, buckets, latencies
