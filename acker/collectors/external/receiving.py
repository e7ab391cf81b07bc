"""Received rows: stamps become rows, which are acked or failed. No call here waits for the store.

Terms: a tree is all that comes of one record; an anchor is the number of a tree; a segment is the rows of an
external stream that one sender stamped together.
"""

import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from acker.collectors.external.exchange import MOST_ROWS, Exchange
from acker.collectors.external.row import Row
from acker.collectors.external.rows import Rows
from acker.collectors.tuples import is_ending, listed
from acker.errors import BufferFull, StreamLost, TupleError, UnknownSubscription, shown
from acker.ledger import ids
from acker.ledger.ids import Ids
from acker.ledger.slabs import causes
from acker.ledger.slabs.causes import Cause
from acker.store import keys
from acker.store.operation import Operation, command
from acker.store.replies import pairs, whole
from acker.streams.staging.external.contents import ExternalCommit, In
from acker.streams.staging.external.rows import one_tree
from acker.streams.staging.external.rows.lookup import find_over
from acker.streams.staging.external.rows.one_tree import OneTreeStamps
from acker.streams.staging.external.rows.stamps import LETTERS, Fault, Seal, Stamp, key_number
from acker.streams.staging.external.segments import Worked

MOST_OPEN = 1_000_000
"""Rows that a process is at work on at most."""
_KNOWN, _KNOWN_SECONDS = 10_000, 60.0
_TOGETHER = 1_000
"""Rows that are acked in one turn: other threads wait meanwhile."""
_NOTHING: dict[int, bool] = {}
_AT_ONCE = 16
"""Shards of a new segment that are asked together at most."""
_KEYS_SECONDS = 1.0
"""Seconds between two looks for a key of a number, at least: anybody can send stamps that are of none."""

Known: TypeAlias = dict[str, dict[int, bool]]
Asked: TypeAlias = dict[tuple[str, int], int]
"""Segments and shards to ask for, with the time at which each segment was begun (Unix seconds)."""


class Receiver:
    """The rows of an external stream, for one subscription."""

    def __init__(
        self, exchange: Exchange, stream: str, subscription: str, slot: int | None, seal: Seal | None
    ) -> None:
        self.stream, self.subscription = stream, subscription
        self._exchange, self._slot, self._seal = exchange, slot, seal
        self._ackers = exchange.core.config.ackers
        self._counted, self._usual = dict[str, int](), 0
        self._forget_segments()
        self._keys_at: dict[int, float] = {}  # by number, 0 to 255
        self._in: tuple[ExternalCommit, In] | None = None

    def _forget_segments(self) -> None:
        """Forgets what is known of segments."""
        self._known: Known = {}
        self._known_since = 0.0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.stream!r}, subscription={self.subscription!r})"

    @property
    def counted(self) -> dict[str, int]:
        """The number of extracted rows, by what they carried.

        All rows, and of these unstamped, damaged, foreign and newer ones, and those whose trees are over.
        """
        usual = Counter(self._counted)
        usual["rows"] += self._usual
        return {counter: count for counter, count in usual.items() if count}

    def ack(self, rows: Row | Iterable[Row]) -> None:
        """Notes that rows were worked on; the next flush says so. Untracked rows change nothing.

        Raises:
            TupleError: A row is of another stream, or was acked or failed before. Rows before it are acked.
        """
        if type(rows) is Row:
            self._ack((rows,))
            return
        if type(rows) is Rows and self._ack_together(rows):
            return
        given = listed(rows, f"a row of {self!r}, or several")
        for first in range(0, len(given), _TOGETHER):
            self._ack(given[first : first + _TOGETHER])

    def _ack(self, rows: Sequence[Row]) -> None:
        """Acks rows, in one turn of their process's threads."""
        exchange = self._exchange
        if exchange.is_locked() or is_ending():
            exchange.check_whole()  # raises
        with exchange.lock:
            opened = exchange.open
            for row in rows:
                place = id(row)
                if place not in opened or row.incoming is not self or exchange.refusal is not None:
                    self._check(row, "acked")
                if row.shard < 0:
                    for worked, _ in self._worked(row):
                        worked.positions.add(row.position)
                else:
                    self._worked_on(row).positions.add(row.position)
                row.ended = "acked"
                opened.pop(place, None)
            if exchange.due:
                exchange.freeze_due()

    def _ack_together(self, rows: Rows) -> bool:
        """Acks rows of which none was looked at; returns False where they are to be acked one by one."""
        exchange, stamps = self._exchange, rows.stamps
        exchange.check_whole()
        with exchange.lock:
            if rows not in exchange.batches or rows.incoming is not self or exchange.refusal is not None:
                return False
            if stamps is None or rows._rows is not None:  # the first look was interrupted
                return False
            received, noting, noted = self._received(), list[list[Ids]](), list[Ids]()
            for (token, sent, *_), first, last, shards in stamps.runs:
                received.newest = max(received.newest, sent)
                for shard in shards:
                    positions = stamps.positions[first:last]
                    if len(shards) > 1:
                        positions = positions[stamps.shards[first:last] == shard]
                    noting.append(received.worked.setdefault((token, shard), Worked()).more)
                    noted.append(positions)
            # All at once: an interrupt comes before or after, because no line of Python runs in between.
            any(map(list.append, noting, noted))
            rows.ended = "acked"
            exchange.batches.pop(rows)
            if exchange.due:
                exchange.freeze_due()
        return True

    def fail(self, rows: Row | Iterable[Row], reason: str = "", *, retry: bool = True) -> None:
        """Notes that rows have failed: the next flush fails their trees, finally.

        Args:
            rows: A row, or several.
            reason: At most 1 KiB. The name of each row (`extract(where=)`) is added, as far as it fits.
            retry: False where another attempt is of no use.

        Raises:
            ValidationError: The reason is no text of at most 1 KiB.
            TupleError: As of `ack`.
        """
        cause = causes.checked(reason, self.subscription, retry=retry)
        for row in [rows] if isinstance(rows, Row) else listed(rows, f"a row of {self!r}, or several"):
            self._exchange.check_whole()
            with self._exchange.lock:
                self._check(row, "failed")
                of_row = cause
                if row.where and row.anchors:
                    of_row = Cause(f"{reason} (row {shown(row.where)})", self.subscription, retry).encode()
                for worked, anchors in self._worked(row):
                    worked.positions.add(row.position)
                    worked.fails.setdefault(row.position, (anchors, of_row))
                row.ended = "failed"
                self._exchange.open.pop(id(row), None)
                self._exchange.freeze_due()

    def _check(self, row: Any, doing: str) -> None:
        self._exchange.check()
        if not isinstance(row, Row) or not self._reads(row.incoming):
            raise TupleError(f"expected a row of {self!r}, got {shown(row)}")
        if row.ended:
            raise TupleError(f"row {row.named()} was {row.ended} before: it cannot be {doing}")
        self._exchange.check_held(row)

    def _reads(self, other: "Receiver") -> bool:
        """True if another receiver of the process reads the same rows."""
        return other is self or (
            other._exchange is self._exchange
            and (other.stream, other.subscription, other._slot)
            == (self.stream, self.subscription, self._slot)
        )

    def _worked(self, row: Row) -> list[tuple[Worked, tuple[int, ...]]]:
        """Returns the bitmaps of a row, in the shards of its anchors, with the anchors in each."""
        if not row.anchors:
            return []
        if row.shard >= 0:
            return [(self._worked_on(row), row.anchors)]
        received = self._received()
        received.newest = max(received.newest, row.sent)
        by_shard: dict[int, tuple[int, ...]] = {}
        for anchor in row.anchors:
            shard = ids.shard_of_anchor(anchor, self._ackers)
            by_shard[shard] = (*by_shard.get(shard, ()), anchor)
        return [
            (received.worked.setdefault((row.token, shard), Worked()), anchors)
            for shard, anchors in by_shard.items()
        ]

    def _worked_on(self, row: Row) -> Worked:
        """Returns the bitmap of a row with one anchor."""
        received = self._received()
        if row.sent > received.newest:
            received.newest = row.sent
        place = row.token, row.shard
        worked = received.worked.get(place)
        if worked is None:
            worked = received.worked[place] = Worked()
        return worked

    def _received(self) -> In:
        """Returns the received rows that the next flush reports."""
        exchange, at_hand = self._exchange, self._in
        if at_hand is not None and at_hand[0] is exchange.current:
            return at_hand[1]
        assert self._slot is not None
        received = exchange.received(self.stream, self._slot)
        self._in = exchange.current, received
        return received

    # What is known of segments

    def _read(self, values: Sequence[Any]) -> list[Stamp | Fault]:
        """Reads the values in the place of stamps; nothing is read where acker is turned off."""
        if self._seal is None:
            return ["unstamped"] * len(values)
        return [self._seal.read(values[0])] if len(values) == 1 else self._seal.read_many(values)

    def _new_keys(self, values: Sequence[Any], stamps: Sequence[Stamp | Fault]) -> set[int]:
        """The numbers of foreign stamps whose keys the stream may have got since; each once a second."""
        if self._seal is None or "foreign" not in stamps:
            return set()
        pairs = zip(values, stamps, strict=True)
        numbers = {key_number(value) for value, fault in pairs if fault == "foreign"}
        now = time.monotonic()
        return {number for number in numbers if now - self._keys_at.get(number, -math.inf) >= _KEYS_SECONDS}

    def _learn_keys(self, numbers: Iterable[int]) -> Operation[None]:
        """Reads the keys of the stream, which may have been rotated. A store that lost it changes nothing.

        numbers: Of the keys that are looked for.
        """
        core, stream = self._exchange.core, self.stream
        stream_keys = keys.Stream(core.config.name, stream)
        [stored] = yield [command("HGETALL", stream_keys.subscriptions)]
        fields = pairs(stored)
        self._keys_at |= dict.fromkeys(numbers, time.monotonic())
        if fields.get(b"epoch") != self._exchange.streams[stream].epoch:
            return
        stamp_keys = {
            int(name[10:]): bytes.fromhex(value.decode())
            for name, value in fields.items()
            if name.startswith(b"stamp_key:")
        }
        self._seal = Seal(core.config.name, stream, stamp_keys, whole(fields.get(b"external"), "external"))

    def _look(self, stamps: Sequence[Any]) -> tuple[Known, Asked]:
        """Returns what is known of the segments of stamps, and what the store is to be asked.

        The known part says by token and shard True if the trees of the segment there are over.
        """
        self._exchange.check()
        now = time.monotonic()
        if now - self._known_since > _KNOWN_SECONDS or len(self._known) > _KNOWN:
            self._forget_segments()
            self._known_since = now
        over_by_token, asked = self._known, Asked()
        for stamp in stamps if self._slot is not None else ():
            if isinstance(stamp, Stamp):
                token, _, sent, anchors = stamp
                of = over_by_token.get(token, _NOTHING)
                for anchor in anchors:
                    shard = ids.shard_of_anchor(anchor, self._ackers)
                    if shard not in of:
                        asked[token, shard] = sent
                if asked and not of and len(stamps) == 1 and self._ackers <= _AT_ONCE:
                    # Its next rows come one by one, too, and have trees in the other shards.
                    asked |= {(token, shard): sent for shard in range(self._ackers)}
        return over_by_token, asked

    def _learn(self, over_by_token: Known, asked: Asked) -> Operation[None]:
        """Asks the store which trees are over, and adds that to what is known."""
        external = self._exchange.streams[self.stream]
        assert self._slot is not None
        try:
            learned = yield from find_over(self._exchange.core, self.stream, external, self._slot, asked)
        except (StreamLost, UnknownSubscription) as error:
            self._exchange.refuse(error)
            raise
        for (token, shard), over in learned.items():
            over_by_token.setdefault(token, {})[shard] = over

    def _usual_row(self, value: Any, where: str) -> Row | None:
        """Makes a row of one tree whose segment is known; None for any other, which takes the long way."""
        seal, exchange = self._seal, self._exchange
        if seal is None or type(value) is not bytes or len(value) != LETTERS:
            return None
        stamp = seal.read_one(value)
        if stamp is None or time.monotonic() - self._known_since > _KNOWN_SECONDS:
            return None
        head, position, anchor = stamp
        token, sent, _, _, _ = head
        over = self._known.get(token)
        shard = 0 if self._ackers == 1 else ids.shard_of_anchor(anchor, self._ackers)
        if over is None or over.get(shard, True):
            return None
        row = Row(self, token, position, sent, (anchor,), where, shard)
        if exchange.is_locked() or is_ending():
            exchange.check_whole()  # raises
        with exchange.lock:
            opened = exchange.open
            if len(opened) >= MOST_OPEN or exchange.rows >= MOST_ROWS or exchange.refusal is not None:
                return None  # the long way raises
            exchange.rows += 1
            opened[id(row)] = row
            self._usual += 1
            self._received().usual += 1
        return row

    def _read_usual(self, values: Sequence[Any]) -> OneTreeStamps | None:
        """Reads sound stamps of one anchor each; None where one is not."""
        if self._seal is None or self._slot is None or self._exchange.observes:
            return None
        return one_tree.read(self._seal, values, self._ackers)

    def _unknown(self, stamps: OneTreeStamps) -> Asked:
        """Returns what the store is to be asked of the segments of these stamps."""
        self._look(())  # forgets what is old
        asked = Asked()
        for head, _, _, shards in stamps.runs:
            of = self._known.get(head.token, _NOTHING)
            asked |= {(head.token, shard): head.sent for shard in shards if shard not in of}
        return asked

    def _usual_rows(self, stamps: OneTreeStamps) -> Rows | None:
        """The rows of known segments; None where one is unusual, and all take the long way."""
        rows, exchange = Rows(self, stamps), self._exchange
        for head, _, _, shards in stamps.runs:
            over = self._known.get(head.token, _NOTHING)
            if any(over.get(shard, True) for shard in shards):
                return None
        exchange.check_whole()
        with exchange.lock:
            room = min(MOST_OPEN - len(exchange.open), MOST_ROWS - exchange.rows)
            if room < len(rows) or exchange.refusal is not None:
                return None
            exchange.rows += len(rows)
            exchange.batches[rows] = None
            self._usual += len(rows)
            self._received().usual += len(rows)
        return rows

    def _make_rows(self, stamps: Sequence[Any], names: Sequence[str], over_by_token: Known) -> list[Row]:
        """Makes rows of what messages carried."""
        if self._seal is None:
            with self._exchange.lock:
                self._counted["rows"] = self._counted.get("rows", 0) + len(names)
            return [Row(self, where=name) for name in names]
        rows, counted = list[Row](), {"rows": len(stamps)} if stamps else {}
        for stamp, name in zip(stamps, names, strict=True):
            if not isinstance(stamp, Stamp) or self._slot is None:
                kind = stamp if isinstance(stamp, str) else "untracked"
                row = Row(self, where=name)
            else:
                token, position, sent, anchors = stamp
                over = over_by_token[token]
                if len(anchors) > 1:
                    anchors = tuple(dict.fromkeys(anchors))
                for anchor in anchors:
                    if over[ids.shard_of_anchor(anchor, self._ackers)]:
                        anchors = self._open(anchors, over)
                        break
                kind = "" if anchors else "over"
                shard = ids.shard_of_anchor(anchors[0], self._ackers) if len(anchors) == 1 else -1
                row = Row(self, token, position, sent, anchors, name, shard)
            if kind:
                counted[kind] = counted.get(kind, 0) + 1
            rows.append(row)
        self._exchange.check_whole()
        with self._exchange.lock:
            tracked = {id(row): row for row in rows if row.anchors}
            if len(self._exchange.open) + len(tracked) > MOST_OPEN:
                raise BufferFull(f"{len(self._exchange.open):,} rows are neither acked nor failed")
            self._exchange.make_room(len(rows))
            self._exchange.open.update(tracked)
            for counter, count in counted.items():
                self._counted[counter] = self._counted.get(counter, 0) + count
            if self._slot is not None:
                received = self._exchange.received(self.stream, self._slot).counted
                for counter, count in counted.items():
                    received[counter] += count
        return rows

    def _open(self, anchors: tuple[int, ...], over: dict[int, bool]) -> tuple[int, ...]:
        """The anchors whose trees are not over in their shards."""
        return tuple(anchor for anchor in anchors if not over[ids.shard_of_anchor(anchor, self._ackers)])
