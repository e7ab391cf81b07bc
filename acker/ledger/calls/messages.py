"""The acker's own messages, many of them in one call: for a service, whose clients speak any language.

All that is for a shard takes effect, or nothing: what needs several calls of a shard is written to a journal
first, and whoever finds it there finishes it. A call is named by a key, which makes its writer and numbers
(lua/ledger/includes/once.lua): sent again under the same key it takes effect once, and is answered the same.
"""

import hashlib
import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from acker.errors import KeyConflict, StoreError, UnreadableRecord, ValidationError
from acker.ledger import ids
from acker.ledger.calls import idempotence, traces
from acker.ledger.calls.calls import HORIZON, Call, Failed, Submission, Updated, sums, unreadable
from acker.ledger.calls.core import Core
from acker.ledger.calls.marks import Mark
from acker.ledger.calls.traces import Event
from acker.ledger.ids import Ids
from acker.ledger.settings.config import check_message_id, check_name, check_text
from acker.ledger.slabs import causes
from acker.ledger.slabs.causes import Cause
from acker.ledger.slabs.slabs import NewSlab
from acker.store import keys, records
from acker.store.operation import Operation, command
from acker.store.replies import pairs

KEY_SECONDS = int(HORIZON)
"""Seconds for which a key is remembered."""
JOURNAL = 256
"""Most calls in the journal of a topology."""
STALE_SECONDS = 10.0
"""Seconds after which a call in the journal is somebody else's to finish."""
_LAST_SECONDS = 60
"""Seconds before a key is forgotten in which it is not used any more: its writer may be, a little later."""
_NAME_BYTES = 16
_OF_STEPS = _ACKS, _FAILS = "acks_by", "fails_by"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Track:
    """A tree to be tracked. Those of one slab have the indexes 0, 1, 2 ..., in any order."""

    anchor: int
    value: int
    message_id: bytes
    spout: str


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages for one topology: trees, (anchor, delta), (anchor, cause), and anchors to be reset.

    A cause is text, as of `acker.ledger.slabs.causes`. acks_by, fails_by: those of steps, with the number of
    the step (`acker.ledger.calls.marks`) as a third.
    """

    tracks: Sequence[Track] = ()
    acks: Sequence[tuple[int, int]] = ()
    fails: Sequence[tuple[int, str]] = ()
    resets: Sequence[int] = ()
    acks_by: Sequence[tuple[int, int, int]] = ()
    fails_by: Sequence[tuple[int, str, int]] = ()

    def dump(self) -> str:
        """The messages as they stand in the journal. Without steps they are what earlier versions write."""
        tracks = [[t.anchor, t.value, t.message_id.hex(), t.spout] for t in self.tracks]
        stored = asdict(self) | {"tracks": tracks}
        return records.dump({name: of for name, of in stored.items() if of or name not in _OF_STEPS})

    @classmethod
    def load(cls, text: str | bytes) -> "Messages":
        """The inverse of `dump`; UnreadableRecord for anything else."""
        with records.reading(text, "messages") as stored:
            return cls(
                [
                    Track(int(anchor), int(value), bytes.fromhex(name), check_name(spout, "spout"))
                    for anchor, value, name, spout in stored["tracks"]
                ],
                [(int(anchor), int(delta)) for anchor, delta in stored["acks"]],
                [(int(anchor), str(cause)) for anchor, cause in stored["fails"]],
                [int(anchor) for anchor in stored["resets"]],
                tuple((int(anchor), int(delta), _step(by)) for anchor, delta, by in stored.get(_ACKS, ())),
                tuple((int(anchor), str(why), _step(by)) for anchor, why, by in stored.get(_FAILS, ())),
            )


def _step(number: object) -> int:
    return Mark(int(number)).step  # type: ignore[call-overload]


@dataclass(slots=True)
class Sent:
    """What became of messages. letters: for each slab, by its first anchor, as `Core.track` gives them."""

    letters: dict[int, str] = field(default_factory=dict)
    updated: Updated = field(default_factory=Updated)
    failed: Failed = field(default_factory=Failed)
    slabs_reset: int = 0


@dataclass(frozen=True, slots=True)
class _Parts:
    """What messages come to. tracks: the first anchors of slabs, and their submission, for each spout."""

    tracks: list[tuple[list[int], Submission[list[str]]]]
    acks: Submission[Updated]
    fails: Submission[Failed]
    resets: Submission[int]

    def by_shard(self) -> dict[int, list[Call]]:
        """The calls of each shard in their order, which is the same whenever they are made."""
        found: dict[int, list[Call]] = {}
        tracks = [call for _, submission in self.tracks for call in submission.calls]
        for call in tracks + self.acks.calls + self.fails.calls + self.resets.calls:
            found.setdefault(call.shard, []).append(call)
        return found

    def result(self) -> Sent:
        """What the calls answered, put together."""
        letters: dict[int, str] = {}
        for firsts, submission in self.tracks:
            letters |= dict(zip(firsts, submission.result(), strict=True))
        sent = Sent(letters, self.acks.result(), self.fails.result(), self.resets.result())
        refused = [first for first, letter in letters.items() if letter == "U"]
        if refused:
            raise UnreadableRecord(unreadable(refused), refused)
        return sent


def send(core: Core, messages: Messages, key: str | None = None) -> Operation[Sent]:
    """Sends messages, under a key of the caller's or one of its own.

    Raises ValidationError before anything has changed; AckerError where there are too many spouts;
    KeyConflict for a key that was used for other messages, or is in use; UnreadableRecord where slabs had to
    be passed over, when all else is done.
    """
    name = secrets.token_hex(_NAME_BYTES) if key is None else name_of(core, key)
    sent = yield from _carry_out(core, messages, name, keyed=key is not None)
    if core.config.traces and core.config.ackers:
        yield from traces.note(core, _events(core, messages, name, sent))
    return sent


def name_of(core: Core, key: str) -> str:
    """The name under which the store remembers a key."""
    given = core.config.name.encode() + b"\0" + check_text(key, "key")
    return hashlib.sha256(given).hexdigest()[: 2 * _NAME_BYTES]


def finish_stale(core: Core) -> Operation[bool]:
    """Finishes a call of the journal whose sender seems to be gone; whether there was one."""
    journal = keys.journal(core.config.name)
    [found] = yield [command("HRANDFIELD", journal, 1, "WITHVALUES")]
    if not found:
        return False
    name, text = found
    began, _, dumped = text.partition(b" ")
    try:
        if abs(time.time() - float(began)) < STALE_SECONDS:  # that clock may have been ahead, and set right
            return False
        wanted, named = Messages.load(dumped), _checked(name)
        [left] = yield [command("TTL", keys.replies(core.config.name, named))]
        if left < _LAST_SECONDS:
            raise ValueError("it is too old: the store may not know any more what was done of it")
    except (ValueError, UnreadableRecord) as error:
        # Nobody can finish it. Trees that it lacks expire, as if its sender had died before.
        _log.error("a call of the journal is given up: %s", error)
        yield [command("HDEL", journal, name)]
        return True
    try:
        yield from _carry_out(core, wanted, named, keyed=True)
    except ValidationError as error:
        _log.error("a call of the journal cannot be finished: %s", error)
        yield [command("HDEL", journal, name)]
    return True


def _events(core: Core, messages: Messages, name: str, sent: Sent) -> list[Event]:
    """What becomes of traced trees by messages that were sent: the same under the same key."""
    tracks = [
        track for track in messages.tracks
        if sent.letters[ids.anchor_at(ids.slab_of(track.anchor), 0)] in "AD"
    ]  # fmt: skip
    acks = [*((*one, None) for one in messages.acks), *messages.acks_by]
    fails = [*((*one, None) for one in messages.fails), *messages.fails_by]
    resets = messages.resets if sent.slabs_reset else ()
    named = [*(one.anchor for one in tracks), *(one[0] for one in acks), *(one[0] for one in fails), *resets]
    picked = set(traces.picked(core, ids.as_ids(named)).tolist())
    events = [
        Event(one.anchor, "tracked", "tracked", spout=one.spout) for one in tracks if one.anchor in picked
    ]
    for anchor, _, step in acks:
        if anchor in picked:
            by = None if step is None else Mark(step)
            events.append(Event(anchor, "acked", f"acked {name}" + ("" if step is None else f" {step}"), by))
    for anchor, cause, step in fails:
        if anchor in picked:
            by = None if step is None else Mark(step)
            events.append(Event(anchor, "failed", "failed", by, reason=Cause.parse(cause).reason))
    return events + (traces.resets(core, ids.as_ids(resets)) if resets else [])


def _checked(name: bytes) -> str:
    if len(bytes.fromhex(name.decode())) != _NAME_BYTES:
        raise ValueError(f"not a name: {name!r:.100}")
    return name.decode()


def _carry_out(core: Core, messages: Messages, name: str, keyed: bool) -> Operation[Sent]:
    slabs = _slabs(messages.tracks)
    if not core.config.ackers:
        for slab in (slab for part in slabs.values() for slab in part):
            slab.check()
        return Sent(
            letters=dict.fromkeys((int(slab.anchors[0]) for part in slabs.values() for slab in part), "A")
        )
    for spout in slabs:
        yield from core.register_spout(spout)
    parts = _parts(core, messages, slabs)
    by_shard = parts.by_shard()
    journaled = any(len(calls) > 1 for calls in by_shard.values())
    if not keyed and not journaled:
        # By a writer that the shards know already, if there is one: each is remembered for an hour.
        yield from idempotence.submit(core, [calls[0] for calls in by_shard.values()])
        return parts.result()
    replies = keys.replies(core.config.name, name)
    yield from _begin(replies, messages, by_shard)
    if journaled:
        yield from _write_journal(core, name, messages)
    for turn in range(max(map(len, by_shard.values()), default=0)):
        calls = [
            calls[turn] for calls in by_shard.values() if len(calls) > turn and calls[turn].reply is None
        ]
        yield from idempotence.submit_for(core, calls, replies)
        if journaled and calls:
            fields = [part for call in calls for part in (idempotence.field(call), call.reply or b"")]
            yield [
                command("HSET", replies, *fields),
                command("EXPIRE", replies, KEY_SECONDS, "NX"),
            ]
    if journaled:
        yield [command("HDEL", keys.journal(core.config.name), name)]
    return parts.result()


def _begin(replies: bytes, messages: Messages, by_shard: dict[int, list[Call]]) -> Operation[None]:
    """Takes the key for these messages, and notes the replies of what was done under it before.

    The key's writer is as old as the record: where that is forgotten, the key is a new one.
    """
    digest = hashlib.sha256(messages.dump().encode()).hexdigest().encode()
    [_, _, _, left, stored] = yield [
        command("HSETNX", replies, "digest", digest),
        command("HSETNX", replies, "writer", secrets.token_bytes(_NAME_BYTES)),
        command("EXPIRE", replies, KEY_SECONDS, "NX"),
        command("TTL", replies),
        command("HGETALL", replies),
    ]
    known = pairs(stored)
    if known.get(b"digest") != digest:
        raise KeyConflict("the key was used for other messages")
    if left < _LAST_SECONDS:
        raise KeyConflict("the key was used nearly an hour ago: the store is about to forget what for")
    writer = bytes(known[b"writer"])
    for calls in by_shard.values():
        for turn, call in enumerate(calls):
            call.stamp = writer, turn + 1
            call.reply = known.get(idempotence.field(call))


def _write_journal(core: Core, name: str, messages: Messages) -> Operation[None]:
    journal = keys.journal(core.config.name)
    [there] = yield [command("HLEN", journal)]
    if there >= JOURNAL:
        raise StoreError(f"{there} calls of many messages are under way: try again later")
    yield [command("HSETNX", journal, name, f"{time.time():.3f} {messages.dump()}")]


def _slabs(tracks: Sequence[Track]) -> dict[str, list[NewSlab]]:
    """The slabs that tracks come to, by spout."""
    found: dict[bytes, list[Track]] = {}
    for track in tracks:
        found.setdefault(ids.slab_of(track.anchor), []).append(track)
    slabs: dict[str, list[NewSlab]] = {}
    for members in found.values():
        members.sort(key=lambda track: ids.index_of(track.anchor))
        if [ids.index_of(track.anchor) for track in members] != list(range(len(members))):
            raise ValidationError(
                f"anchor {members[0].anchor}: expected the trees of its slab with the indexes 0, 1, 2 ..., "
                f"each once, got {[ids.index_of(track.anchor) for track in members][:5]}"
            )
        if len({track.spout for track in members}) > 1:
            raise ValidationError(f"anchor {members[0].anchor}: the trees of a slab belong to one spout")
        slabs.setdefault(members[0].spout, []).append(
            NewSlab(
                ids.as_ids([track.anchor for track in members]),
                ids.as_ids([track.value for track in members]),
                [check_message_id(track.message_id) for track in members],
            )
        )
    return slabs


def _parts(core: Core, messages: Messages, slabs: dict[str, list[NewSlab]]) -> _Parts:
    tracks = [
        ([int(slab.anchors[0]) for slab in own], core.track(own, spout)) for spout, own in slabs.items()
    ]
    by_step: dict[int | None, list[tuple[int, bytes]]] = {}
    for anchor, cause in messages.fails:
        by_step.setdefault(None, []).append((anchor, causes.checked_text(cause)))
    for anchor, cause, step in messages.fails_by:
        by_step.setdefault(step, []).append((anchor, causes.checked_text(cause)))
    fails = [
        core.fail_each(
            ids.as_ids([anchor for anchor, _ in named]),
            [cause for _, cause in named],
            None if step is None else Mark(step),
        )
        for step, named in by_step.items()
    ]
    anchors, deltas = (ids.as_ids([pair[place] for pair in messages.acks]) for place in (0, 1))
    acks = [core.update(anchors, deltas)]
    for step in sorted({step for _, _, step in messages.acks_by}):
        own = [(anchor, delta) for anchor, delta, by in messages.acks_by if by == step]
        anchors, deltas = (ids.as_ids([pair[place] for pair in own]) for place in (0, 1))
        acks.append(core.update(anchors, deltas, 0, Mark(step), len(own)))
    return _Parts(
        tracks,
        Submission([call for part in acks for call in part.calls], lambda calls: Updated(*sums(calls, 2))),
        Submission([call for part in fails for call in part.calls], lambda calls: Failed(*sums(calls, 3))),
        core.reset_timeout(_distinct(messages.resets)),
    )


def _distinct(anchors: Sequence[int]) -> Ids:
    return np.unique(ids.as_ids(anchors))
