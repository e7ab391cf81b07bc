"""Totals of streams: the content of each stream, and the rows that each subscription has still to ack.

Terms: a tree is all that comes of one record; a segment is some thousand rows of a stream, stored and acked
as one piece; a slot is the random number of a subscription.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from acker.ledger.calls.core import Core
from acker.ledger.fields import HIDDEN, Count, Named, Seconds
from acker.ledger.settings.config import STREAM_MAX_AGE, STREAM_MAX_BYTES
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, command
from acker.store.replies import pairs, positive, seconds, whole
from acker.streams.log import lanes
from acker.streams.log.kinds import FIELD, open_rows

Kind: TypeAlias = Literal["managed", "external"]
UNTRACKED = ("unstamped", "damaged", "foreign", "newer", "over")
"""Reasons for which a received row is in no tree: no stamp, a damaged one, another stream's, one of a newer
version, or all its trees are over."""
_LOOK = 100


@dataclass(frozen=True, slots=True)
class SubscriptionTotals:
    """A reader of a stream: a subscription has its own tuples."""

    name: Annotated[str | None, Named("subscription"), "null for what waits for the first subscription."]
    slot: Annotated[int, HIDDEN]
    rows_published: Count
    rows_acked: Count
    rows_dropped: Count
    unread_age: Annotated[Seconds | None, "Seconds since the oldest segment that nobody has taken."]
    acks_late: Annotated[Count, "Acks that came when their trees were over, mostly expired."] = 0
    rows_stale: Annotated[
        Count, "Rows that its readers have dropped: their trees were over when they were read."
    ] = 0
    rows_received: Annotated[
        Count, "Rows of an external stream that its steps were given, each as often as it came."
    ] = 0
    rows_unstamped: Annotated[Count, "Of these, rows without a stamp: they are in no tree."] = 0
    rows_damaged: Annotated[Count, "Of these, rows whose stamp was cut or edited."] = 0
    rows_foreign: Annotated[Count, "Of these, rows whose stamp is of another stream or an emptied store."] = 0
    rows_newer: Annotated[Count, "Of these, rows whose stamp is of a newer version of acker."] = 0
    rows_over: Annotated[Count, "Of these, rows whose segment was acked or too old before they came."] = 0

    @property
    def rows_behind(self) -> Annotated[Count, "Rows that it has still to ack."]:
        """Rows that it has still to ack.

        A row of a managed stream counts until its whole segment is acked. A row of an external stream counts
        until it is received; a row that has trees in several shards may count once for each of them.
        """
        return max(0, self.rows_published - self.rows_acked - self.rows_dropped)


@dataclass(frozen=True, slots=True)
class StreamTotals:
    """A stream between jobs."""

    name: Annotated[str, Named("stream")]
    kind: Annotated[Kind, "Managed: its rows are in the store. External: they are elsewhere."]
    segments: Annotated[Count, "Published, and not acked by everyone who is to read them."]
    bytes: Count
    dropped: Annotated[Count, "Segments dropped by the stream's limits."]
    max_age: Annotated[Seconds, "Seconds after which a segment is dropped."]
    max_bytes: Annotated[Count, "Over so many bytes the oldest segments are dropped."]
    rows_unheard: Annotated[
        Count,
        "Rows that an external stream sent while it had no subscription: nobody has to ack them.",
    ]
    subscriptions: tuple[SubscriptionTotals, ...]


def stream_totals(core: Core, names: Sequence[str] | None = None) -> Operation[list[StreamTotals]]:
    """Totals of all streams of a topology, or of named ones, by name. A stream without segments has zeros.

    Raises UnreadableRecord, which names the field that is no number.
    """
    if names is None:
        [found] = yield [command("SMEMBERS", keys.streams(core.config.name))]
        names = sorted(name.decode("utf-8", "replace") for name in found)
    totals = []
    replies = yield [command("HGETALL", keys.Stream(core.config.name, name).subscriptions) for name in names]
    for name, reply in zip(names, replies, strict=True):
        fields = {field.decode("utf-8", "replace"): value for field, value in pairs(reply).items()}
        totals.append((yield from _stream(core, name, fields)))
    return totals


def _stream(core: Core, name: str, fields: Mapping[str, bytes]) -> Operation[StreamTotals]:
    def count(field: str, default: int = 0) -> int:
        return whole(fields.get(field), f"stream {name!r}, {field}", default)

    def acked(slot: int) -> int:
        whole_segments = count(f"acked:{slot}") + count(f"ahead:{slot}")
        if left is None:
            return whole_segments
        return max(whole_segments, count(f"rows:{slot}") - count(f"dropped:{slot}") - left[slot])

    names = {
        whole(field[5:].encode(), f"stream {name!r}, {field}"): value.decode("utf-8", "replace")
        for field, value in fields.items()
        if field.startswith("slot:")
    }
    waiting = count("next")
    slots: list[int] = sorted(names)
    if not slots and f"rows:{waiting}" in fields:
        slots = [waiting]
    ages = yield from _unread_ages(core, keys.Stream(core.config.name, name), fields, slots)
    left = (yield from _open_rows(core, slots)) if FIELD in fields else None
    members = tuple(
        SubscriptionTotals(
            name=names.get(slot),
            slot=slot,
            rows_published=count(f"rows:{slot}"),
            rows_acked=acked(slot),
            rows_dropped=count(f"dropped:{slot}"),
            unread_age=ages[slot],
            acks_late=count(f"late:{slot}"),
            rows_stale=count(f"stale:{slot}"),
            rows_received=count(f"seen_rows:{slot}"),
            **{f"rows_{reason}": count(f"seen_{reason}:{slot}") for reason in UNTRACKED},
        )
        for slot in slots
    )
    return StreamTotals(
        name=name,
        kind="external" if FIELD in fields else "managed",
        segments=count("segments"),
        bytes=count("bytes"),
        dropped=count("dropped"),
        max_age=positive(fields.get("max_age"), f"stream {name!r}, max_age", STREAM_MAX_AGE),
        max_bytes=count("max_bytes", STREAM_MAX_BYTES),
        rows_unheard=count("unheard"),
        subscriptions=members,
    )


def _open_rows(core: Core, slots: Sequence[int]) -> Operation[dict[int, int]]:
    """Rows of emitted segments that have still to be worked on, by slot: all shards count theirs."""
    fields, left = [open_rows(slot) for slot in slots], dict.fromkeys(slots, 0)
    if not fields:
        return left
    for reply in (yield [command("HMGET", shard.counters, *fields) for shard in core.shards]):
        for slot, value in zip(slots, reply, strict=True):
            left[slot] += max(0, whole(value, f"the open rows of subscription {slot}", 0))
    return left


def _unread_ages(
    core: Core, stream_keys: keys.Stream, fields: Mapping[str, bytes], slots: Sequence[int]
) -> Operation[dict[int, float | None]]:
    if not slots:
        return {}
    places = {
        slot: lanes.cursors(
            fields.get(f"passed:{slot}") or fields.get(f"cursor:{slot}"), fields.get(f"lanes:{slot}")
        )
        for slot in slots
    }
    asked = [(slot, place) for slot, its in places.items() for place in dict.fromkeys(its)]
    [instant, *replies] = yield [
        Request(stream_keys.entries, ["TIME"]),
        *(command("XRANGE", stream_keys.entries, b"(" + place, "+", "COUNT", _LOOK) for _, place in asked),
        *(command("XRANGE", stream_keys.returned(slot), "-", "+", "COUNT", 1) for slot in slots),
    ]
    now = seconds(instant)
    ids: dict[int, list[bytes]] = {slot: [] for slot in slots}
    for (slot, _), found in zip(asked, replies, strict=False):
        ids[slot] += _first(found, slot, places[slot])
    for slot, back in zip(slots, replies[len(asked) :], strict=True):
        ids[slot] += [one[1][1] for one in back]
    ages: dict[int, float | None] = {}
    for slot, entries in ids.items():
        times = [whole(entry.split(b"-")[0], "id of an entry") / 1000 for entry in entries]
        ages[slot] = max(0.0, now - min(times)) if times else None
    return ages


def _first(entries: Reply, slot: int, cursors: Sequence[bytes]) -> list[bytes]:
    """The id of the first entry for a slot that no reader has taken; empty if there is none."""
    for entry, values in entries:
        its = pairs(values)
        if b"%d" % slot in its.get(b"slots", b"").split(b",") and lanes.unread(entry, its, cursors):
            return [bytes(entry)]
    return []
