"""Cuts messages into parts, each of which takes effect as a whole.

A part is of one shard, and is little work for the server. All that is for a slab lies in one part. Where that
is too much for one, its track and its resets lie in one part, and in another all acks and fails of each tree.
So nobody sees a tree with a part of its acks and fails.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from acker.errors import StoreError
from acker.ledger import ids
from acker.ledger.calls import encoding, scripts
from acker.ledger.calls.calls import Call, Submission
from acker.ledger.calls.core import Core
from acker.ledger.calls.marks import Mark
from acker.ledger.slabs import sections
from acker.ledger.slabs.slabs import NewSlab

TRACK, UPDATE, FAIL, RESET = range(4)
"""Kinds of messages, in the order in which a part has them."""

_SCRIPT = 1 / 50
_SLAB = 1 / encoding.CALL_SLABS
_WORD = 1 / encoding.CALL_WORDS
_BYTE = 1 / encoding.CALL_BYTES
_ACK = 1 / encoding.CALL_TREES
_ACK_OF_MANY = 2 / encoding.CALL_TREES
_DENSE = encoding.DENSE_WORDS / encoding.CALL_WORDS
_FAIL = 1 / encoding.CALL_FAILS
_FAIL_OF_MANY = 1 / encoding.CALL_MANY
_RESET = 1 / encoding.CALL_RESETS
COSTS = _SCRIPT, _SLAB, _WORD, _BYTE, _ACK, _ACK_OF_MANY, _DENSE, _FAIL, _FAIL_OF_MANY, _RESET
"""Costs of messages, of the 1 that a part may cost: a call of one kind that is as large as it may be.

A key is taken for messages that are cut by these costs, so a version that cuts otherwise refuses it.
"""


class Message(NamedTuple):
    """A message, with its place and its cost.

    place: shard, slab, and index of the tree; -1 for what is of the whole slab. kind: what it does, and the
    spout or the number of the step that does it. content: what the call of its kind takes.
    """

    place: tuple[int, bytes, int]
    kind: tuple[int, Any]
    cost: float
    content: Any


def tracks(core: Core, spout: str, slabs: Iterable[NewSlab]) -> Iterator[Message]:
    """Messages that track slabs."""
    for slab in slabs:
        slab.check()
        name, count = ids.slab_of(int(slab.anchors[0])), len(slab.anchors)
        cost = _SLAB + count * _WORD + sum(map(len, slab.message_ids)) * _BYTE
        yield Message(_place(core, name), (TRACK, spout), cost, slab)


def updates(core: Core, acks: Sequence[tuple[int, int]], step: int | None = None) -> Iterator[Message]:
    """Messages that XOR deltas into the ack values of trees."""
    per_slab = _per_slab([anchor for anchor, _ in acks])
    for ack in acks:
        slab = ids.slab_of(ack[0])
        cost = (
            _ACK
            if ids.is_one(slab)
            else _ACK_OF_MANY + (_DENSE / per_slab[slab] if per_slab[slab] > 1 else 0)
        )
        yield Message(_place(core, slab, ids.index_of(ack[0])), (UPDATE, step), cost, ack)


def fails(core: Core, causes: Sequence[tuple[int, bytes]], step: int | None = None) -> Iterator[Message]:
    """Messages that fail trees."""
    per_slab = _per_slab([anchor for anchor, _ in causes])
    for fail in causes:
        slab = ids.slab_of(fail[0])
        cost = _FAIL + (0 if ids.is_one(slab) else _FAIL_OF_MANY / per_slab[slab])
        yield Message(_place(core, slab, ids.index_of(fail[0])), (FAIL, step), cost, fail)


def resets(core: Core, anchors: Sequence[int]) -> Iterator[Message]:
    """Messages that reset slabs, of lines in all their sections."""
    everywhere = np.unique(sections.everywhere(ids.as_ids(anchors))).tolist()
    per_slab = _per_slab(everywhere)
    for anchor in everywhere:
        slab = ids.slab_of(anchor)
        yield Message(_place(core, slab), (RESET, None), _RESET / per_slab[slab] + _ACK, anchor)


def _per_slab(anchors: Sequence[int]) -> Counter[bytes]:
    ids.check_anchors(ids.as_ids(anchors))
    return Counter(map(ids.slab_of, anchors))


def _place(core: Core, slab: bytes, index: int = -1) -> tuple[int, bytes, int]:
    return ids.shard_of(slab, core.config.ackers), slab, index


def cut(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Cuts messages into parts: the same messages in the same order are always cut alike."""
    part: list[Message] = []
    cost, kinds = 0.0, frozenset[tuple[int, Any]]()
    for unit in _units(sorted(messages, key=_place_of)):
        more = _cost(unit, kinds)
        if part and (part[0].place[0] != unit[0].place[0] or cost + more > 1):
            yield part
            part, cost, kinds = [], 0.0, frozenset()
            more = _cost(unit, kinds)
        part += unit
        cost += more
        kinds = kinds.union(message.kind for message in unit)
    if part:
        yield part


def _units(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """The messages of each slab, or of each tree where those of its slab are too many for a part."""
    for _, group in groupby(messages, _slab_of):
        of_slab = list(group)
        if _cost(of_slab, frozenset()) <= 1:
            yield of_slab
        else:
            yield from (list(of_tree) for _, of_tree in groupby(of_slab, _place_of))


def _cost(unit: Sequence[Message], kinds: frozenset[tuple[int, Any]]) -> float:
    """The cost of messages. kinds: of those that the part has already."""
    scripts_more = {message.kind for message in unit} - kinds
    return sum(message.cost for message in unit) + len(scripts_more) * _SCRIPT


def _place_of(message: Message) -> tuple[int, bytes, int]:
    return message.place


def _slab_of(message: Message) -> bytes:
    return message.place[1]


@dataclass(slots=True)
class Calls:
    """The calls that parts are sent as, and those that they are made of, by kind.

    tracks: the first anchors of slabs, and the submission that tracks them.
    """

    sent: list[Call] = field(default_factory=list)
    tracks: list[tuple[list[int], Submission[list[str]]]] = field(default_factory=list)
    updates: list[Call] = field(default_factory=list)
    fails: list[Call] = field(default_factory=list)
    resets: list[Call] = field(default_factory=list)
    together: list[tuple[Call, list[Call]]] = field(default_factory=list)

    def add(self, core: Core, part: Sequence[Message]) -> None:
        """Adds the calls of a part: one, and those that send long message ids ahead of it."""
        contents: dict[tuple[int, Any], list[Any]] = {}
        for message in part:
            contents.setdefault(message.kind, []).append(message.content)
        members: list[Call] = []
        for (kind, by), found in sorted(contents.items(), key=_first_in_order):
            members += self._add(core, kind, by, found)
        ahead = [call for call in members if call.script.name == "stage_ids"]
        members = [call for call in members if call.script.name != "stage_ids"]
        [whole] = (
            members if len(members) == 1 else [scripts.apply_calls(core.shards[part[0].place[0]], members)]
        )
        whole.turn = 1 if ahead else 0
        self.sent += [*ahead, whole]
        if len(members) > 1:
            self.together.append((whole, members))

    def _add(self, core: Core, kind: int, by: Any, contents: list[Any]) -> list[Call]:
        mark = None if by is None or kind == TRACK else Mark(by)
        if kind == TRACK:
            tracked = core.track(contents, by)
            self.tracks.append(([int(slab.anchors[0]) for slab in contents], tracked))
            return tracked.calls
        if kind == RESET:
            named = encoding.reset_calls(ids.as_ids(contents), core.config.ackers)
            calls = [scripts.reset_timeout(core.shards[one.shard], one) for one in named]
            self.resets += calls
            return calls
        anchors = ids.as_ids([anchor for anchor, _ in contents])
        if kind == UPDATE:
            deltas = ids.as_ids([delta for _, delta in contents])
            calls = core.update(anchors, deltas, 0, mark, 0 if mark is None else len(contents)).calls
            self.updates += calls
        else:
            calls = core.fail_each(anchors, [cause for _, cause in contents], mark).calls
            self.fails += calls
        return calls

    def answer(self) -> None:
        """Gives each call the reply that it got as one of several."""
        for whole, members in self.together:
            for call, reply in zip(members, (whole.reply or b"").split(b"\n"), strict=True):
                if reply.startswith(b"!"):
                    raise StoreError(reply[1:].decode("utf-8", "replace"))
                call.reply = reply


def _first_in_order(content: tuple[tuple[int, Any], list[Any]]) -> tuple[int, str]:
    (kind, by), _ = content
    return kind, str(by)
