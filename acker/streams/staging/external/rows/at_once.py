"""Received rows in one chain: what a caller has at hand saves its commit the reads of `receipts.receive`.

It runs the scripts of `receipts.receive`, in the same order. If a shard has lost emits of the commit, or a
stream was made anew, the chain stops, and the commit goes on step by step. The chain also acks the segments
that the rows fill. Other full segments, void ones and further fails follow behind it. If the process dies
before that, the ticker does it (acker/streams/upkeep/open_segments.py).

Terms: a segment is the rows of an external stream that one sender stamped together; a vector has a number for
each tree, the XOR of tuple ids.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import redis

from acker.ledger.calls.calls import Call
from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, Reply, Request
from acker.streams.staging import vectors
from acker.streams.staging.external import receiving, scripts, voiding
from acker.streams.staging.external.receiving import Part
from acker.streams.staging.external.rows import receipts
from acker.streams.staging.external.rows.receipts import Receipt
from acker.streams.staging.external.rows.sending import NeedsLook
from acker.streams.staging.vectors import CommitProgress, StagedVectors, VectorKey

_STREAMS = 100
_log = logging.getLogger(__name__)
_BYTES_OF_WEIGHT, _FAIL_WEIGHT = 16, 26_000
"""Bytes of bits that have a weight of one, and the weight of fails (acker/streams/commits/chunks.py)."""


class Step(NamedTuple):
    """Requests of a chain.

    Attributes:
        requests: The requests.
        then: Takes their replies.
        stops: True if later steps need their success.
        weights: The weight of each request.
    """

    requests: Sequence[Request | Call]
    then: Callable[[list[Reply]], Operation[None] | None] | None = None
    stops: bool = False
    weights: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Given:
    """The received rows of a commit, at hand.

    Attributes:
        receipts: The receipts that the commit names.
        ttl: Seconds for which rows wait whose segment is not emitted yet.
        heads: Replies to `acker.streams.staging.external.receiving.head` for their segments, by key.
    """

    receipts: Sequence[Receipt] = ()
    ttl: int = 0
    heads: Mapping[bytes, Reply] = field(default_factory=dict)


def steps(core: Core, given: Given, progress: CommitProgress, emitted: Sequence[VectorKey]) -> list[Step]:
    """The steps that say which rows were worked on.

    emitted: External segments that the commit has emitted: rows of them may have been worked on before.
    """
    parts = receiving.parts_of_rows(core, receipts.rows(given.receipts))
    new = receiving.bits_of(parts)
    parts += receiving.looks_of([place for place in emitted if place not in new])
    filled = dict[bytes, StagedVectors]()
    for (key, _), positions in new.items():
        staged = receiving.filled(key, given.heads[key], positions) if key in given.heads else None
        if staged is not None:
            filled[key] = staged
    acking = [place for place in new if place[0] in filled]
    ends = vectors.calls_of(core, acking, filled, "2", None)
    letters = _Letters(core, parts, frozenset(acking))
    calls = [receiving.call_of(core, part, progress, given.ttl) for part in parts]
    notes = [receipts.note(core, one, progress, given.ttl) for one in given.receipts]
    weights = [part.size // _BYTES_OF_WEIGHT + _FAIL_WEIGHT * part.fails for part in parts]
    return [
        Step(_epochs(core, given.receipts), _check_epochs, stops=True),
        Step(calls, letters.take, stops=True, weights=weights),
        Step([call for call, _ in ends], weights=[weight for _, weight in ends]),
        Step(notes),
    ]


def _epochs(core: Core, received: Sequence[Receipt]) -> list[Request]:
    name, requests = core.config.name, list[Request]()
    for at in range(0, len(received), _STREAMS):
        part = received[at : at + _STREAMS]
        streams = [keys.Stream(name, one.stream) for one in part]
        requests.append(scripts.check_epochs(streams, [one.epoch for one in part]))
    return requests


def _check_epochs(replies: list[Reply]) -> None:
    if any(reply != 1 for reply in replies):
        raise NeedsLook


@dataclass(slots=True)
class _Letters:
    """The letters of segments (lua/streams/staging/external/receive.lua), and what is left to do for them."""

    core: Core
    parts: Sequence[Part]
    acked: frozenset[VectorKey]
    looks: dict[VectorKey, str] = field(default_factory=dict)

    def take(self, replies: list[Reply]) -> Operation[None]:
        """Takes the replies of shards; returns what is left to do.

        Raises StreamFull, and NeedsLook if a shard has lost emits.
        """
        if any(isinstance(reply, redis.ResponseError) for reply in replies):
            raise receiving.full(self.core, str(replies[-1]))
        dropped = False
        for part, reply in zip(self.parts, replies, strict=False):
            letters = bytes(reply).partition(b" ")[0].decode()
            if letters.startswith("l"):
                raise NeedsLook
            dropped = dropped or letters.startswith("d")
            self.looks.update(zip(part.places(), letters, strict=True))
        if len(replies) < len(self.parts):
            raise NeedsLook
        if dropped:
            _log.error(
                "%s: the store has dropped work of a commit that waited too long: inputs of the commit are "
                "not acked, and their trees expire", self.core.config.name,
            )  # fmt: skip
        return self._finish()

    def _finish(self) -> Operation[None]:
        """Has shards take further fails, acks other full segments, and fails the trees of void ones."""
        looks = {place: letter for place, letter in self.looks.items() if letter in "fmv"}
        looks = {place: letter for place, letter in looks.items() if letter != "f" or place not in self.acked}
        progress = CommitProgress("none", Counter())
        while left := [place for place, letter in looks.items() if letter == "m"]:
            parts = receiving.looks_of(left)
            calls = [receiving.call_of(self.core, part, progress, 1) for part in parts]
            for part, reply in zip(parts, (yield from self.core.ask(calls)), strict=True):
                letters = bytes(reply).partition(b" ")[0].decode()
                looks.update(zip(part.places(), letters, strict=True))
        yield from voiding.finish(self.core, looks)
