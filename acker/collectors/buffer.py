"""What waits to be sent, and the submissions that are made of it."""

import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from acker.ledger.calls import traces
from acker.ledger.calls.calls import Submission
from acker.ledger.calls.core import Core
from acker.ledger.calls.marks import Mark
from acker.ledger.calls.traces import Event
from acker.ledger.ids import Ids
from acker.ledger.slabs.slabs import NewSlab

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
    """What waits to become parts. Each message is added by one assignment, and a flush takes all by one.

    tracks: name of a slab -> its spout and itself. acks: step, how many tuples of trees it
    has acked, and deltas. fails: step, cause and anchors. resets: anchor and step. posted: submissions that
    are made already.
    """

    tracks: "dict[bytes, tuple[Source, Trees]]" = field(default_factory=dict)
    acks: dict[int, tuple[str, int, dict[int, int]]] = field(default_factory=dict)
    fails: dict[int, tuple[str, bytes, tuple[int, ...]]] = field(default_factory=dict)
    resets: dict[tuple[int, str], None] = field(default_factory=dict)
    posted: "list[Sending]" = field(default_factory=list)
    emitted: int = 0

    @property
    def messages(self) -> int:
        """How many messages wait."""
        return (
            sum(len(slab.marks) for _, slab in self.tracks.values())
            + sum(len(deltas) for _, _, deltas in self.acks.values())
            + sum(len(anchors) for _, _, anchors in self.fails.values())
            + len(self.resets)
            + sum(part.weight for part in self.posted)
        )

    def steps(self, core: Core) -> set[str]:
        """The steps that have acked or failed, or reset the timeout of traced trees."""
        marking = {step for step, _, _ in self.acks.values()} | {step for step, _, _ in self.fails.values()}
        if core.config.traces and self.resets:
            kept = set(traces.picked(core, _reset(self.resets)).tolist())
            marking |= {step for anchor, step in self.resets if anchor in kept}
        return marking


@dataclass(slots=True, eq=False)
class Sending:
    """One submission on its way. `wanted` says whether it still matters, `sent_at` when it was first sent.

    events: what becomes of traced trees by it.
    """

    submission: Submission[Any]
    weight: int
    answered: Callable[[Any], None] = lambda _: None
    wanted: Callable[[], bool] = lambda: True
    sent_at: float | None = None
    events: list[Event] = field(default_factory=list)


def sendings(core: Core, buffer: Buffer, mark: Callable[[str], Mark | None]) -> tuple[list[Sending], int]:
    """Submissions of what is buffered, tracks first; and how many tuples were emitted that none tells of."""
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
            update = core.update(anchors, values, emitted, by, sum(trees for trees, _ in acked))
            events = list[Event]()
            if core.config.traces:
                key = f"acked {secrets.token_hex(8)}"
                events = traces.of(core, "acked", key, np.array(anchors, np.int64), by)
            parts.append(Sending(update, len(anchors), events=events))
            emitted = 0
    fails: dict[Mark | None, list[tuple[int, bytes]]] = {}
    for step, cause, failed in buffer.fails.values():
        fails.setdefault(mark(step), []).extend((anchor, cause) for anchor in failed)
    for by, named in fails.items():
        if named:
            failing, causes = np.array([anchor for anchor, _ in named], np.int64), [why for _, why in named]
            events = traces.failed(core, failing, causes, by)
            parts.append(Sending(core.fail_each(failing, causes, by), len(named), events=events))
    if buffer.resets:
        parts.append(_resets(core, buffer.resets, mark))
    return parts, emitted


def _reset(resets: Iterable[tuple[int, str]]) -> Ids:
    return np.array(list(dict.fromkeys(anchor for anchor, _ in resets)), np.int64)


def _resets(core: Core, resets: Collection[tuple[int, str]], mark: Callable[[str], Mark | None]) -> Sending:
    anchors = _reset(resets)
    sending = Sending(core.reset_timeout(anchors), len(anchors))
    if len(traces.picked(core, anchors)):
        for step in sorted({step for _, step in resets}):
            own = _reset(pair for pair in resets if pair[1] == step)
            sending.events += traces.resets(core, own, mark(step))
        sending.answered = lambda slabs: None if slabs else sending.events.clear()
    return sending


def track(core: Core, source: Source, slabs: Sequence[Trees], emitted: int) -> Sending:
    """The track of slabs of a spout, which has emitted so many tuples into them."""
    new = [slab.new() for slab in slabs]

    def answered(letters: Sequence[str]) -> None:
        source.tracked(slabs, letters)
        own = [slab.anchors for slab, letter in zip(new, letters, strict=True) if letter in "AD"]
        if core.config.traces and own:
            anchors = np.concatenate(own)
            sending.events = traces.of(core, "tracked", "tracked", anchors, spout=source.spout)

    sending = Sending(
        core.track(new, source.spout, emitted=emitted),
        sum(len(slab.marks) for slab in slabs),
        answered,
        lambda: any(slab.left for slab in slabs),
    )
    return sending
