"""Cuts messages into parts, each of which takes effect as a whole.

A part belongs to one shard, and is little work for the server. All messages for a slab lie in one part. If
they are too many, the slab's track and resets lie in one part, and all acks and fails of each tree in
another. So no reader sees a tree with only some of its acks and fails.

Terms: a tree is all that comes of one record; an anchor is the number of a tree; a slab is the trees that one
call tracked together; a delta is the XOR of the ids that a call adds to a tree.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from acker.ledger import ids
from acker.ledger.calls import encoding, scripts
from acker.ledger.calls.calls import Call
from acker.ledger.calls.core import Core
from acker.ledger.calls.marks import Mark
from acker.ledger.slabs.slabs import NewSlab

TRACK, UPDATE, FAIL, RESET = range(4)
"""Kinds of messages, in the order in which a part has them."""

_SCRIPT = 1 / 50
_SLAB, _WORD, _BYTE = 1 / encoding.CALL_SLABS, 1 / encoding.CALL_WORDS, 1 / encoding.CALL_BYTES
_ACK, _DENSE = 1 / encoding.CALL_TREES, encoding.DENSE_WORDS / encoding.CALL_WORDS
_FAIL, _FAIL_OF_MANY = 1 / encoding.CALL_FAILS, 1 / encoding.CALL_MANY
_RESET = 1 / encoding.CALL_RESETS
COSTS = "1", _SCRIPT, _SLAB, _WORD, _BYTE, _ACK, _DENSE, _FAIL, _FAIL_OF_MANY, _RESET
"""The rule of cutting: a version, and the costs of messages. A part may cost 1.

The largest call of one kind costs 1. An idempotency key belongs to messages that are cut by this rule, so a
version with another rule refuses the key.
"""


class Message(NamedTuple):
    """A message, with its place and its cost.

    place: shard, slab, and index of the tree; -1 for the whole slab. kind: the kind of message, and the spout
    or the number of the step. content: a slab, or an anchor and its delta or cause.
    """

    place: tuple[int, bytes, int]
    kind: tuple[int, str | int | None]
    cost: float
    content: Any


def tracks(core: Core, spout: str, slabs: Iterable[NewSlab]) -> Iterator[Message]:
    """Messages that track slabs."""
    for slab in slabs:
        slab.check()
        name, count = ids.slab_of(int(slab.anchors[0])), len(slab.anchors)
        cost = _SLAB + count * _WORD + sum(map(len, slab.message_ids)) * _BYTE
        yield Message((_shard(core, name), name, -1), (TRACK, spout), cost, slab)


def others(core: Core, kind: int, messages: Sequence[tuple[int, Any, int | None]]) -> Iterator[Message]:
    """Messages of another kind: anchor, delta or cause, and the number of the step."""
    ids.check_anchors(ids.as_ids([anchor for anchor, _, _ in messages]))
    names = [ids.slab_of(anchor) for anchor, _, _ in messages]
    of_slab, cost = Counter(names), _COST_OF[kind]
    for name, (anchor, content, step) in zip(names, messages, strict=True):
        place = _shard(core, name), name, -1 if kind == RESET else ids.index_of(anchor)
        yield Message(place, (kind, step), cost(ids.is_one(name), of_slab[name]), (anchor, content))


_COST_OF: dict[int, Callable[[bool, int], float]] = {
    UPDATE: lambda alone, count: _ACK if alone else 2 * _ACK + (_DENSE / count if count > 1 else 0),
    FAIL: lambda alone, count: _FAIL + (0 if alone else _FAIL_OF_MANY / count),
    RESET: lambda _, count: _ACK + _RESET / count,
}
"""The cost of a message by its kind. alone: True for a slab of one; count: messages for its slab."""


def _shard(core: Core, slab: bytes) -> int:
    return ids.shard_of(slab, core.config.ackers)


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
    """The messages of each slab, or of each tree if the messages of its slab are too many for a part."""
    for _, group in groupby(messages, lambda message: message.place[1]):
        of_slab = list(group)
        if _cost(of_slab, frozenset()) <= 1:
            yield of_slab
        else:
            yield from (list(of_tree) for _, of_tree in groupby(of_slab, _place_of))


def _cost(unit: Sequence[Message], kinds: frozenset[tuple[int, Any]]) -> float:
    """The cost of messages. kinds: kinds that the part has already."""
    more = {message.kind for message in unit} - kinds
    return sum(message.cost for message in unit) + len(more) * _SCRIPT


def _place_of(message: Message) -> tuple[int, bytes, int]:
    return message.place


def by_kind(part: Sequence[Message]) -> list[tuple[int, Any, list[Any]]]:
    """The kinds of messages of a part, in order: kind, spout or step, and contents."""
    contents: dict[tuple[int, Any], list[Any]] = {}
    for message in part:
        contents.setdefault(message.kind, []).append(message.content)
    ordered = sorted(contents.items(), key=lambda item: (item[0][0], str(item[0][1])))
    return [(kind, by, found) for (kind, by), found in ordered]


def calls(core: Core, kind: int, step: int | None, contents: Sequence[tuple[int, Any]]) -> list[Call]:
    """The calls for messages of one kind, except tracks."""
    mark = None if step is None else Mark(step)
    anchors = ids.as_ids([anchor for anchor, _ in contents])
    if kind == UPDATE:
        deltas = ids.as_ids([delta for _, delta in contents])
        return core.update(anchors, deltas, 0, mark, 0 if mark is None else len(contents)).calls
    if kind == FAIL:
        return core.fail_each(anchors, [cause for _, cause in contents], mark).calls
    named = encoding.reset_calls(anchors, core.config.ackers)  # all sections are named already
    return [scripts.reset_timeout(core.shards[call.shard], call) for call in named]
