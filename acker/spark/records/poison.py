"""Records that end the process of their task (`os._exit`, a segmentation fault, no memory) fail alone.

A task records in the store that it works on records, and deletes the record when it is done or has raised. A
task that reads the record of an earlier attempt is careful: a separate process works on some records; if that
dies, one works on each half of them, down to the one record. After such a record, all tasks of its function
are careful for an hour, because it comes again as a replay.
"""

import hashlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from pyspark import TaskContext

from acker.ledger.client import Ledger
from acker.spark.queries import microbatches
from acker.store import keys
from acker.store.operation import command

NOTE_TTL = 86_400
"""Seconds for which the note of a dead task is kept."""
CAREFUL_TTL = 3_600
"""Seconds for which tasks are careful after a poison record."""

Work: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]
Fail: TypeAlias = Callable[[pa.RecordBatch, str], pa.RecordBatch]


@dataclass(frozen=True)
class Suspects:
    """The notes of one function of one step. name: of both."""

    ledger: Ledger
    name: str

    @classmethod
    def of(cls, ledger: Ledger, step: str, function: object, schema: str) -> "Suspects":
        """Returns the notes of a function, identified by its name and the schema of its results."""
        named = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
        digest = hashlib.sha256(f"{named} {schema}".encode()).hexdigest()[:16]
        return cls(ledger, f"{step}:{digest}")

    def begin(self) -> bool:
        """Records that this task works on records; returns True if it must be careful."""
        note = command("SET", self._note(), 1, "EX", NOTE_TTL, "NX")
        new, found = self.ledger.store.send([note, command("EXISTS", self._found())])
        return new is None or bool(found)

    def end(self) -> None:
        """Deletes the note of this task."""
        self.ledger.store.send([command("UNLINK", self._note())])

    def found(self) -> None:
        """Records that there was a poison record."""
        self.ledger.store.send([command("SET", self._found(), 1, "EX", CAREFUL_TTL)])

    def _note(self) -> bytes:
        context, batch = TaskContext.get(), microbatches.of_task()
        partition = context.partitionId() if context is not None else 0
        query = batch.query if batch is not None else ""
        return keys.suspect(self.ledger.config.name, f"{self.name}:{query}:{partition}")

    def _found(self) -> bytes:
        return keys.suspect(self.ledger.config.name, self.name)


def halved(
    rows: pa.RecordBatch, work: Work, fail: Fail, on_poison: Callable[[], None]
) -> Iterator[pa.RecordBatch]:
    """Yields the results of a separate process for rows; if it dies, the results for each half of them.

    fail: makes the failed row of one row and a reason. on_poison: called for each such row. Costs a fork; of
    `n` rows of which `k` end their process, at most 2 `k` log2(`n`) more.
    """
    made, reason = _in_a_process(rows, work)
    if made is not None:
        yield made
    elif rows.num_rows <= 1:
        on_poison()
        yield fail(rows, reason)
    else:
        middle = rows.num_rows // 2
        yield from halved(rows.slice(0, middle), work, fail, on_poison)
        yield from halved(rows.slice(middle), work, fail, on_poison)


def _in_a_process(rows: pa.RecordBatch, work: Work) -> tuple[pa.RecordBatch | None, str]:
    """Returns the results of a fork of this process for rows; or None and the manner of its end."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        _work_and_exit(rows, work, reading, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if status == 0:
        with pa.ipc.open_stream(pa.py_buffer(answer)) as stream:
            return stream.read_next_batch(), ""
    return None, f"the record ended its process {_ended(status)}, each time it was tried"


def _work_and_exit(rows: pa.RecordBatch, work: Work, reading: int, writing: int) -> None:
    status = 1
    try:
        os.close(reading)
        made = work(rows)
        with os.fdopen(writing, "wb") as pipe, pa.ipc.new_stream(pipe, made.schema) as stream:
            stream.write_batch(made)
        status = 0
    except BaseException:  # noqa: BLE001 - the exit code tells the parent
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # nothing of the parent's is to be flushed or closed


def _ended(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"
