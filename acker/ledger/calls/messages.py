"""Messages to the acker, many in one call: for a service with clients in any language.

Terms: a tree is all that comes of one record; an anchor is the number of a tree; a slab is the trees that one
call tracked together; a delta is the XOR of the ids that a call adds to a tree.
"""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TypeVar

import numpy as np

from acker.errors import KeyConflict, StoreError, UnreadableRecord, ValidationError
from acker.ledger import ids
from acker.ledger.calls import idempotence, idempotency_keys, parts, scripts, traces
from acker.ledger.calls.calls import Call, Failed, Submission, Updated, sums, unreadable
from acker.ledger.calls.core import Core
from acker.ledger.calls.idempotency_keys import NAME_BYTES
from acker.ledger.calls.marks import Mark
from acker.ledger.calls.parts import COSTS, FAIL, RESET, TRACK, UPDATE
from acker.ledger.calls.traces import Event
from acker.ledger.settings.config import check_message_id, check_spout
from acker.ledger.slabs import causes, sections
from acker.ledger.slabs.causes import Cause
from acker.ledger.slabs.slabs import NewSlab
from acker.store.operation import Operation

T = TypeVar("T")

_LAST_SECONDS = 60
"""Seconds before a key's end in which it is not used: its writers may be forgotten soon after."""


@dataclass(frozen=True, slots=True)
class Track:
    """A tree to be tracked. Trees of one slab have the indexes 0, 1, 2 ..., in any order."""

    anchor: int
    value: int
    message_id: bytes
    spout: str


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages for one topology: trees, (anchor, delta), (anchor, cause), and anchors to be reset.

    A cause is a text of `acker.ledger.slabs.causes`. The number of the acking or failing step may stand third
    (`acker.ledger.calls.marks`).
    """

    tracks: Sequence[Track] = ()
    acks: Sequence[tuple[int, int] | tuple[int, int, int | None]] = ()
    fails: Sequence[tuple[int, str] | tuple[int, str, int | None]] = ()
    resets: Sequence[int] = ()

    def text(self) -> str:
        """The messages as text: equal for equal messages in the same order."""
        return repr([list(getattr(self, kind.name)) for kind in fields(self)])


@dataclass(slots=True)
class Sent:
    """The result of messages. letters: the letter of `Core.track` for each slab, by its first anchor."""

    letters: dict[int, str] = field(default_factory=dict)
    updated: Updated = field(default_factory=Updated)
    failed: Failed = field(default_factory=Failed)
    slabs_reset: int = 0


def send(core: Core, messages: Messages, key: str | None = None) -> Operation[Sent]:
    """Sends messages, under the caller's idempotency key if there is one.

    They take effect in parts (`acker.ledger.calls.parts`). If the operation does not end, some parts may have
    taken effect: a resend under the same key completes all of them, each once.
    Raises ValidationError before anything has changed; SpoutsFull if there are too many spouts; KeyConflict
    for a key of other messages; UnreadableRecord if slabs were passed over, after the rest was done.
    """
    slabs = _slabs(messages.tracks)
    if not core.config.ackers:
        for slab in (slab for part in slabs.values() for slab in part):
            slab.check()
        letters = {int(slab.anchors[0]): "A" for part in slabs.values() for slab in part}
        return Sent(letters)
    submission = _submission(core, messages, slabs)
    for spout in slabs:
        yield from core.register_spout(spout)
    name = secrets.token_hex(NAME_BYTES)
    if key is not None:
        name = idempotency_keys.name_of(core, key)
        taken = yield from idempotency_keys.take(core, key, f"{COSTS} {messages.text()}")
        if taken.seconds < _LAST_SECONDS:
            raise KeyConflict(
                "the idempotency key is about to expire (it is kept for an hour): use a new key"
            )
        forgotten_at = time.monotonic() + taken.seconds - _LAST_SECONDS
        for number, call in enumerate(submission.calls):
            call.stamp = taken.writer_of(number), 1
            call.sent_at = forgotten_at - idempotence.SENDING * core.horizon
    sent = yield from idempotence.send(core, submission)
    if core.config.traces:
        yield from traces.note(core, _events(core, messages, name, sent))
    return sent


def _events(core: Core, messages: Messages, name: str, sent: Sent) -> list[Event]:
    """The events of traced trees by sent messages, the same under the same key."""
    tracks = [
        track for track in messages.tracks
        if sent.letters[ids.anchor_at(ids.slab_of(track.anchor), 0)] in "AD"
    ]  # fmt: skip
    acks, fails = _with_steps(messages.acks), _with_steps(messages.fails)
    resets = messages.resets if sent.slabs_reset else ()
    named = [
        *(track.anchor for track in tracks),
        *(ack[0] for ack in acks),
        *(fail[0] for fail in fails),
        *resets,
    ]
    traced = set(traces.select(core, ids.as_ids(named)).tolist())
    events = [
        Event(track.anchor, "tracked", "tracked", spout=track.spout)
        for track in tracks
        if track.anchor in traced
    ]
    for anchor, _, step in acks:
        if anchor in traced:
            by = None if step is None else Mark(step)
            events.append(Event(anchor, "acked", f"acked {name}" + ("" if step is None else f" {step}"), by))
    for anchor, cause, step in fails:
        if anchor in traced:
            by = None if step is None else Mark(step)
            events.append(Event(anchor, "failed", "failed", by, reason=Cause.parse(cause).reason))
    return events + (traces.resets(core, ids.as_ids(resets)) if resets else [])


def _slabs(tracks: Sequence[Track]) -> dict[str, list[NewSlab]]:
    """The slabs of tracks, by spout."""
    by_slab: dict[bytes, list[Track]] = {}
    for track in tracks:
        by_slab.setdefault(ids.slab_of(track.anchor), []).append(track)
    slabs: dict[str, list[NewSlab]] = {}
    for members in by_slab.values():
        members.sort(key=lambda track: ids.index_of(track.anchor))
        if [ids.index_of(track.anchor) for track in members] != list(range(len(members))):
            raise ValidationError(
                f"anchor {members[0].anchor}: expected the trees of its slab with the indexes 0, 1, 2 ..., "
                f"each once, got {[ids.index_of(track.anchor) for track in members][:5]}"
            )
        check_spout(members[0].spout)
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


def _submission(core: Core, wanted: Messages, slabs: Mapping[str, Sequence[NewSlab]]) -> Submission[Sent]:
    """Messages in parts: always the same parts in the same order."""
    fails = [(anchor, causes.checked_text(cause), step) for anchor, cause, step in _with_steps(wanted.fails)]
    everywhere = np.unique(sections.everywhere(ids.as_ids(wanted.resets))).tolist()
    messages = [
        *(message for spout, own in slabs.items() for message in parts.tracks(core, spout, own)),
        *parts.others(core, UPDATE, _with_steps(wanted.acks)),
        *parts.others(core, FAIL, fails),
        *parts.others(core, RESET, [(anchor, None, None) for anchor in everywhere]),
    ]
    sent: list[Call] = []
    together: list[tuple[Call, list[Call]]] = []
    tracks: list[tuple[list[int], Submission[list[str]]]] = []
    of_kind: dict[int, list[Call]] = {UPDATE: [], FAIL: [], RESET: []}
    for part in parts.cut(messages):
        ahead: list[Call] = []
        members: list[Call] = []
        for kind, by, contents in parts.by_kind(part):
            if kind == TRACK:
                tracked = core.track(contents, by)
                tracks.append(([int(slab.anchors[0]) for slab in contents], tracked))
                ahead += [call for call in tracked.calls if call.script.name == "stage_ids"]
                members += [call for call in tracked.calls if call.script.name == "track"]
            else:
                calls = parts.calls(core, kind, by, contents)
                of_kind[kind] += calls
                members += calls
        whole = members[0]
        if len(members) > 1:
            whole = scripts.apply_calls(core.shards[whole.shard], members)
            together.append((whole, members))
        whole.turn = 1 if ahead else 0
        sent += [*ahead, whole]

    def result(_: list[Call]) -> Sent:
        for whole, members in together:
            _answer(whole, members)
        letters: dict[int, str] = {}
        for firsts, submission in tracks:
            letters |= dict(zip(firsts, submission.result(), strict=True))
        sent = Sent(
            letters,
            Updated(*sums(of_kind[UPDATE], 2)),
            Failed(*sums(of_kind[FAIL], 3)),
            sums(of_kind[RESET], 1)[0],
        )
        refused = [first for first, letter in letters.items() if letter == "U"]
        if refused:
            raise UnreadableRecord(unreadable(refused), refused)
        return sent

    return Submission(sent, result)


def _answer(whole: Call, members: Sequence[Call]) -> None:
    """Gives each call its reply from the replies of calls that were sent as one."""
    for call, reply in zip(members, (whole.reply or b"").split(b"\n"), strict=True):
        if reply.startswith(b"!"):
            raise StoreError(reply[1:].decode("utf-8", "replace"))
        call.reply = reply


def _with_steps(
    messages: Sequence[tuple[int, T] | tuple[int, T, int | None]],
) -> list[tuple[int, T, int | None]]:
    return [(one[0], one[1], one[2] if len(one) == 3 else None) for one in messages]
