"""The buffer of unsent messages, and the submissions made of it.

Terms: a tree is all that comes of one record; an anchor is the number of a tree; a slab is the trees that one
call tracked together; a vector has a number for each tree, the XOR of tuple ids; a delta is the XOR of the
ids that a call adds to a tree.
"""

import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from acker.ledger.calls import idempotence, traces
from acker.ledger.calls.calls import Submission
from acker.ledger.calls.core import Core
from acker.ledger.calls.marks import Mark
from acker.ledger.calls.traces import Event
from acker.ledger.ids import Ids
from acker.ledger.settings.config import spout_of
from acker.ledger.slabs.slabs import NewSlab

BUFFERED = 65_536
"""Most buffered messages. A caller that adds more first sends them, and gets the error if that fails.
Without linger the caller gets BufferFull."""
AT_ONCE = 8_192
"""Number of messages that ends the linger."""
log = logging.getLogger("acker")
LINGER = 0.005
"""Seconds for which messages wait for others, by default, before they are sent."""


class Trees(Protocol):
    """Trees of one slab that are to be tracked, as the outbox sees them."""

    left: int
    marks: bytearray

    def new(self) -> NewSlab:
        """The slab as the ledger takes it."""


class Source(Protocol):
    """The spout of trees, as the outbox sees it."""

    spout: str

    def tracked(self, slabs: Sequence[Any], letters: Sequence[str]) -> None:
        """Takes the ledger's answer to a track; again, it changes nothing."""


@dataclass(slots=True)
class Buffer:
    """Unsent messages. One assignment adds a message, and a flush takes all messages by one assignment.

    Attributes:
        tracks: Name of a slab -> its spout and the slab.
        acks: Number of an ack -> step, number of acked tuples and deltas.
        vectors: Number of an ack of many tuples -> step, anchors and deltas.
        fails: Number of a fail -> step, cause and anchors.
        resets: Pairs of anchor and step.
        posted: Submissions.
        emitted: Number of tuples emitted into trees since the last track or ack that was sent.
    """

    tracks: "dict[bytes, tuple[Source, Trees]]" = field(default_factory=dict)
    acks: dict[int, tuple[str, int, dict[int, int]]] = field(default_factory=dict)
    vectors: dict[int, tuple[str, Ids, Ids]] = field(default_factory=dict)
    fails: dict[int, tuple[str, bytes, tuple[int, ...]]] = field(default_factory=dict)
    resets: dict[tuple[int, str], None] = field(default_factory=dict)
    posted: "list[OutgoingCall]" = field(default_factory=list)
    emitted: int = 0

    @property
    def messages(self) -> int:
        """Number of unsent messages."""
        count = len(self.resets)
        # Each flush asks twice, and mostly has one kind of messages: a sum takes time even over none.
        if self.tracks:
            count += sum(len(slab.marks) for _, slab in self.tracks.values())
        if self.acks:
            count += sum(len(deltas) for _, _, deltas in self.acks.values())
        if self.vectors:
            count += sum(len(anchors) for _, anchors, _ in self.vectors.values())
        if self.fails:
            count += sum(len(anchors) for _, _, anchors in self.fails.values())
        if self.posted:
            count += sum(part.weight for part in self.posted)
        return count

    def steps(self, core: Core) -> set[str]:
        """The steps with an ack or a fail, or with a reset of a traced tree's timeout."""
        marking = {step for step, _, _ in self.acks.values()}
        if self.fails:
            marking |= {step for step, _, _ in self.fails.values()}
        if self.vectors:
            marking |= {step for step, _, _ in self.vectors.values()}
        if core.config.traces and self.resets:
            kept = set(traces.select(core, _reset(self.resets)).tolist())
            marking |= {step for anchor, step in self.resets if anchor in kept}
        return marking


@dataclass(slots=True, eq=False)
class OutgoingCall:
    """A submission on its way.

    Attributes:
        submission: The submission.
        weight: Number of its messages.
        answered: Takes its result.
        wanted: Returns True while the submission still matters.
        sent_at: Time of the first send, on the monotonic clock; None before it.
        events: Its events of traced trees.
    """

    submission: Submission[Any]
    weight: int
    answered: Callable[[Any], None] = lambda _: None
    wanted: Callable[[], bool] = lambda: True
    sent_at: float | None = None
    events: list[Event] = field(default_factory=list)

    def sendable(self, core: Core) -> bool:
        """False for an unwanted submission, and for one so old that the store may have forgotten its writer.

        A resend of such an old one could apply it twice, which undoes it. Its trees have expired by then.
        """
        if not self.wanted():
            return False
        if self.sent_at is None or not idempotence.expired(core, self.sent_at):
            return True
        waited = time.monotonic() - self.sent_at
        log.error("acker: %d messages were not answered for %.0f s and are given up", self.weight, waited)
        return False


def outgoing_calls(
    core: Core, buffer: Buffer, mark: Callable[[str], Mark | None]
) -> tuple[list[OutgoingCall], int]:
    """Submissions of the buffer, tracks first; and the number of emitted tuples that none of them counts."""
    parts = [*buffer.posted]
    tracks: dict[Source, list[Trees]] = {}
    for source, slab in buffer.tracks.values():
        if slab.left:
            tracks.setdefault(source, []).append(slab)
    emitted = buffer.emitted
    for source, slabs in tracks.items():
        parts.append(track(core, source, slabs, emitted))
        emitted = 0
    acks: dict[Mark | None, list[tuple[int, dict[int, int]]]] = {}
    for step, trees, deltas in buffer.acks.values():
        acks.setdefault(mark(step), []).append((trees, deltas))
    for by, acked in acks.items():
        anchors = [anchor for _, deltas in acked for anchor in deltas]
        values = [own for _, deltas in acked for own in deltas.values()]
        if anchors:
            parts.append(_acks(core, anchors, values, emitted, by, sum(trees for trees, _ in acked)))
            emitted = 0
    vectors: dict[Mark | None, list[tuple[Ids, Ids]]] = {}
    for step, *vector in buffer.vectors.values():
        vectors.setdefault(mark(step), []).append((vector[0], vector[1]))
    for by, some in vectors.items():
        in_vector = np.concatenate([anchors for anchors, _ in some])
        deltas_of = np.concatenate([deltas for _, deltas in some])
        if len(in_vector):
            parts.append(_acks(core, in_vector, deltas_of, emitted, by, len(in_vector)))
            emitted = 0
    fails: dict[Mark | None, list[tuple[int, bytes]]] = {}
    for step, cause, failed in buffer.fails.values():
        fails.setdefault(mark(step), []).extend((anchor, cause) for anchor in failed)
    for by, step_anchors in fails.items():
        if step_anchors:
            failing, causes = (
                np.array([anchor for anchor, _ in step_anchors], np.int64),
                [why for _, why in step_anchors],
            )
            events = traces.failed(core, failing, causes, by)
            parts.append(OutgoingCall(core.fail_each(failing, causes, by), len(step_anchors), events=events))
    if buffer.resets:
        parts.append(_resets(core, buffer.resets, mark))
    return parts, emitted


def _acks(
    core: Core, anchors: Ids | list[int], deltas: Ids | list[int], emitted: int, by: Mark | None, acked: int
) -> OutgoingCall:
    """The acks of a step, of so many tuples."""
    events = list[Event]()
    if core.config.traces:
        key = f"acked {secrets.token_hex(8)}"
        events = traces.make_events(core, "acked", key, np.asarray(anchors, np.int64), by)
    return OutgoingCall(core.update(anchors, deltas, emitted, by, acked), len(anchors), events=events)


def _reset(resets: Iterable[tuple[int, str]]) -> Ids:
    return np.array(list(dict.fromkeys(anchor for anchor, _ in resets)), np.int64)


def _resets(
    core: Core, resets: Collection[tuple[int, str]], mark: Callable[[str], Mark | None]
) -> OutgoingCall:
    anchors = _reset(resets)
    outgoing = OutgoingCall(core.reset_timeout(anchors), len(anchors))
    if len(traces.select(core, anchors)):
        for step in sorted({step for _, step in resets}):
            own = _reset(pair for pair in resets if pair[1] == step)
            outgoing.events += traces.resets(core, own, mark(step))
        outgoing.answered = lambda slabs: None if slabs else outgoing.events.clear()
    return outgoing


def track(core: Core, source: Source, slabs: Sequence[Trees], emitted: int) -> OutgoingCall:
    """The track of a spout's slabs, into which it has emitted so many tuples."""
    new = [slab.new() for slab in slabs]

    def answered(letters: Sequence[str]) -> None:
        source.tracked(slabs, letters)
        own = [slab.anchors for slab, letter in zip(new, letters, strict=True) if letter in "AD"]
        if core.config.traces and own:
            anchors, spout = np.concatenate(own), spout_of(source.spout)
            outgoing.events = traces.make_events(core, "tracked", "tracked", anchors, spout=spout)

    outgoing = OutgoingCall(
        core.track(new, source.spout, emitted=emitted),
        sum(len(slab.marks) for slab in slabs),
        answered,
        lambda: any(slab.left for slab in slabs),
    )
    return outgoing
