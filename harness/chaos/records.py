"""The source's list of its records, in SQLite: it outlives each kill of a process and a lost store.

Times are of the monotonic clock, which all processes of a machine share and no jump touches.
"""

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

POISON, HANG = "poison", "hang"
"""Words of a record: one that always fails, one at which the bolt hangs when it has it for the first time."""
UNKNOWN, TWO_OUTCOMES, FALSE_ACK = "unknown outcome", "two outcomes", "false ack"
OTHER_TREE = "outcome of another tree"
REPORTED_AGAIN = "outcome reported again in one life"
"""Kinds of contradictions: of a tree that was never emitted; of one tree, both from the store; words are
missing; the
tree is not the one that was tracked for the message id; the store's outcome came again though nobody who was
reported it had died."""
FAILURES = 3
"""After so many fails a record is given up. One that expired is tried again as long as it takes."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    number INTEGER PRIMARY KEY,
    line TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting',
    attempt INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS by_state ON records (state);
CREATE TABLE IF NOT EXISTS trees (
    message_id TEXT PRIMARY KEY,
    number INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    life INTEGER NOT NULL,
    emitted REAL NOT NULL,
    reported REAL,
    status TEXT NOT NULL DEFAULT '',
    ledger TEXT NOT NULL DEFAULT '',
    reported_life INTEGER NOT NULL DEFAULT 0,
    reported_at REAL,
    reason TEXT NOT NULL DEFAULT '',
    anchor INTEGER
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_reported ON trees (reported, emitted);
CREATE TABLE IF NOT EXISTS oddities (kind TEXT NOT NULL, what TEXT NOT NULL, since REAL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS wishes (word TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value REAL NOT NULL) WITHOUT ROWID;
"""
_BUSY = 60.0


class Record(NamedTuple):
    """A record. state: waiting, flying, acked or dead. attempt: of its last tree. reason: why it is dead."""

    number: int
    line: str
    state: str
    attempt: int
    reason: str


class Tree(NamedTuple):
    """A tree of a record. reported: when its first outcome came, None before; ledger: what the store said."""

    message_id: str
    number: int
    emitted: float
    reported: float | None
    status: str
    ledger: str


class Oddity(NamedTuple):
    """A contradiction. since: when the outcome came that another one contradicts; at: when that one came."""

    kind: str
    what: str
    since: float | None
    at: float


@dataclass(frozen=True, slots=True)
class Reported:
    """An outcome. ledger: whether the store reported it, not the spout's own timer; anchor: of which tree."""

    message_id: str
    status: str
    reason: str
    ledger: bool
    anchor: int | None = None


def words(line: str) -> list[str]:
    """The words of a line."""
    return line.split(" ")


class Records:
    """The records of a run. One process emits and learns, another wishes and looks."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, timeout=_BUSY, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.executescript(_SCHEMA)

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield self._database
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def add(self, count: int) -> None:
        """Adds records: first one for each wish, then others up to `count`."""
        with self._write() as database:
            [[last]] = database.execute("SELECT coalesce(max(number), 0) FROM records")
            wished = [word for (word,) in database.execute("SELECT word FROM wishes LIMIT 100")]
            database.execute("DELETE FROM wishes WHERE rowid IN (SELECT rowid FROM wishes LIMIT 100)")
            extra = wished + [""] * max(0, count - len(wished))
            rows = [(last + 1 + place, line_of(last + 1 + place, word)) for place, word in enumerate(extra)]
            database.executemany("INSERT INTO records (number, line) VALUES (?, ?)", rows)

    def wish(self, word: str, count: int = 1) -> None:
        """Asks for records that have a word."""
        with self._write() as database:
            database.executemany("INSERT INTO wishes VALUES (?)", [(word,)] * count)

    def emit(self, most: int, flying: int, life: int) -> list[tuple[str, str, int]]:
        """Notes the next attempts: message id, line, attempt. At most `most`, and `flying` in flight."""
        with self._write() as database:
            [[now]] = database.execute("SELECT count(*) FROM records WHERE state = 'flying'")
            room = max(0, min(most, flying - now))
            found = database.execute(
                "SELECT number, line, attempt + 1 FROM records WHERE state = 'waiting' "
                "ORDER BY number LIMIT ?",
                (room,),
            ).fetchall()
            made = [(f"{number}/{attempt}", line, attempt) for number, line, attempt in found]
            numbers = [(number,) for number, _, _ in found]
            database.executemany(
                "UPDATE records SET state = 'flying', attempt = attempt + 1 WHERE number = ?", numbers
            )
            instant = time.monotonic()
            database.executemany(
                "INSERT INTO trees (message_id, number, attempt, life, emitted) VALUES (?, ?, ?, ?, ?)",
                [
                    (one[0], number, one[2], life, instant)
                    for one, (number,) in zip(made, numbers, strict=True)
                ],
            )
        return made

    def track(self, anchors: Mapping[str, int]) -> None:
        """Notes the trees of message ids."""
        with self._write() as database:
            database.executemany(
                "UPDATE trees SET anchor = ? WHERE message_id = ?",
                [(anchor, message_id) for message_id, anchor in anchors.items()],
            )

    def flying(self, most: int) -> list[str]:
        """Message ids of trees in flight."""
        found = self._database.execute("SELECT message_id FROM trees WHERE reported IS NULL LIMIT ?", (most,))
        return [message_id for (message_id,) in found]

    def tell(self, outcomes: Iterable[Reported], life: int) -> None:
        """Notes what the source learns in one of its lives: a tree's first outcome decides on its record."""
        with self._write() as database:
            for one in outcomes:
                self._tell(database, one, life)

    def _tell(self, database: sqlite3.Connection, one: Reported, life: int) -> None:
        tree = database.execute(
            "SELECT number, attempt, reported, ledger, reported_life, reported_at, anchor FROM trees "
            "WHERE message_id = ?",
            (one.message_id,),
        ).fetchone()
        if tree is None:
            self._odd(database, UNKNOWN, f"{one.message_id} {one.status}")
            return
        number, attempt, reported, ledger, reported_life, reported_at, anchor = tree
        if None not in (anchor, one.anchor) and anchor != one.anchor:
            self._odd(database, OTHER_TREE, f"{one.message_id}: {one.anchor}, not {anchor}")
        if one.ledger:
            if ledger and ledger != one.status:
                self._odd(database, TWO_OUTCOMES, f"{one.message_id}: {ledger}, {one.status}", reported)
            elif ledger and reported_life == life:
                self._odd(database, REPORTED_AGAIN, f"{one.message_id}: {ledger}", reported_at)
            database.execute(
                "UPDATE trees SET ledger = ?, reported_life = ?, reported_at = ? WHERE message_id = ?",
                (one.status, life, time.monotonic(), one.message_id),
            )
        if reported is not None:
            return
        database.execute(
            "UPDATE trees SET reported = ?, status = ?, reason = ? WHERE message_id = ?",
            (time.monotonic(), one.status, one.reason, one.message_id),
        )
        failed = one.status == "failed"
        database.execute(
            "UPDATE records SET reason = ?, failures = failures + ?, state = CASE "
            "WHEN ? THEN 'acked' WHEN failures + ? >= ? THEN 'dead' ELSE 'waiting' END "
            "WHERE number = ? AND attempt = ? AND state = 'flying'",
            (one.reason, failed, one.status == "acked", failed, FAILURES, number, attempt),
        )

    def line(self, number: int) -> str:
        """The line of a record."""
        [[line]] = self._database.execute("SELECT line FROM records WHERE number = ?", (number,))
        return str(line)

    def odd(self, kind: str, what: str) -> None:
        """Notes what must not be."""
        with self._write() as database:
            self._odd(database, kind, what)

    @staticmethod
    def _odd(database: sqlite3.Connection, kind: str, what: str, since: float | None = None) -> None:
        database.execute("INSERT INTO oddities VALUES (?, ?, ?, ?)", (kind, what, since, time.monotonic()))

    def silent(self, life: int, before: float) -> list[str]:
        """Trees of earlier lives of the source, emitted before an instant, that have no outcome."""
        found = self._database.execute(
            "SELECT message_id FROM trees WHERE reported IS NULL AND emitted < ? AND life < ? LIMIT 1000",
            (before, life),
        )
        return [message_id for (message_id,) in found]

    def note(self, name: str, value: float) -> None:
        """Notes a fact."""
        with self._write() as database:
            database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def fact(self, name: str) -> float | None:
        """A fact that was noted."""
        found = self._database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if found is None else float(found[0])

    def states(self) -> dict[str, int]:
        """The number of records of each state."""
        return dict(self._database.execute("SELECT state, count(*) FROM records GROUP BY state").fetchall())

    def wishes(self) -> int:
        """The number of open wishes."""
        return int(self._database.execute("SELECT count(*) FROM wishes").fetchone()[0])

    def records(self) -> list[Record]:
        """All records."""
        found = self._database.execute(
            "SELECT number, line, state, attempt, reason FROM records ORDER BY number"
        )
        return [Record(*row) for row in found]

    def trees(self) -> list[Tree]:
        """All trees."""
        found = self._database.execute(
            "SELECT message_id, number, emitted, reported, status, ledger FROM trees"
        )
        return [Tree(*row) for row in found]

    def oddities(self) -> list[Oddity]:
        """All that was odd."""
        return [Oddity(*row) for row in self._database.execute("SELECT kind, what, since, at FROM oddities")]

    def close(self) -> None:
        """Closes the database."""
        self._database.close()


def line_of(number: int, word: str = "") -> str:
    """The line of a record: 1 to 8 words of its own, and perhaps another."""
    own = [f"r{number}x{place}" for place in range(1 + number % 8)]
    return " ".join([*own, word] if word else own)
