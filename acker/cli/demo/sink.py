"""An idempotent sink in SQLite: one row for each word of each record, whatever is written again."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pyarrow as pa

_SCHEMA = """
CREATE TABLE IF NOT EXISTS words (
    message_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    word TEXT NOT NULL,
    PRIMARY KEY (message_id, position)
) WITHOUT ROWID
"""
_BUSY = 30.0


class Sink:
    """Words by (message id, position). A batch that is written again changes nothing: its keys are the same.

    A batch is one transaction. Holds no connection, so it may be used from any thread and process.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=_BUSY)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute(_SCHEMA)
            with database:
                yield database

    def write(self, rows: pa.Table) -> None:
        """Writes rows of message_id, position and word."""
        columns = [rows.column(name).to_pylist() for name in ("message_id", "position", "word")]
        self.write_rows(zip(*columns, strict=True))

    def write_rows(self, rows: Iterable[tuple[str, int, str]]) -> None:
        """The same from tuples."""
        with self._open() as database:
            database.executemany(
                "INSERT INTO words VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET word = excluded.word", rows
            )

    def records(self) -> Iterator[tuple[str, list[tuple[int, str]]]]:
        """Each record that has words: its message id, and (position, word) in order."""
        with self._open() as database:
            cursor = database.execute(
                "SELECT message_id, position, word FROM words ORDER BY message_id, position"
            )
            for message_id, rows in groupby(cursor, itemgetter(0)):
                yield message_id, [(position, word) for _, position, word in rows]

    def count(self) -> int:
        """Returns the number of words."""
        with self._open() as database:
            return int(database.execute("SELECT count(*) FROM words").fetchone()[0])

    def most_frequent(self, most: int) -> list[tuple[str, int]]:
        """The most frequent words and their counts."""
        query = "SELECT word, count(*) AS n FROM words GROUP BY word ORDER BY n DESC, word LIMIT ?"
        with self._open() as database:
            return [(word, count) for word, count in database.execute(query, (most,))]
