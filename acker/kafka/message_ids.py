"""Message ids of records: `topic/partition@offset`, made for many records without a Python object each."""

from collections.abc import Iterable

import numpy as np

from acker.kafka.failed.retries import Partition
from acker.ledger.ids import Ids
from acker.ledger.slabs.slabs import PackedIds


def message_id(partition: Partition, offset: int) -> str:
    """The message id of a record."""
    return f"{partition[0]}/{partition[1]}@{offset}"


def packed_ids(runs: Iterable[tuple[Partition, Ids]]) -> PackedIds:
    """The message ids of records, by their partitions and offsets, in order."""
    lengths, texts, count = list[bytes](), list[bytes](), 0
    for (topic, number), offsets in runs:
        prefix = f"{topic}/{number}@".encode()
        for same in _by_digits(offsets):
            digits = len(str(int(same[0])))
            text = np.empty((len(same), len(prefix) + digits), np.uint8)
            text[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
            left = same
            for place in range(digits):
                higher = left // 10  # by a constant: numpy has no fast divmod
                left, text[:, -1 - place] = higher, left - 10 * higher
            text[:, len(prefix) :] += ord("0")
            lengths.append(np.full(len(same), text.shape[1], "<u2").tobytes())
            texts.append(text.tobytes())
        count += len(offsets)
    return PackedIds(b"".join(lengths + texts), count)


def _by_digits(offsets: Ids) -> list[Ids]:
    """Ascending offsets, cut where they have one more digit."""
    first, last = len(str(int(offsets[0]))), len(str(int(offsets[-1])))
    cuts = np.searchsorted(offsets, [10**digits for digits in range(first, last)])
    return [part for part in np.split(offsets, cuts) if len(part)]
