"""Held tuples: what processes in plain Python report to have taken, and neither acked nor failed for long.

No stream has the tuples of a bolt in plain Python, so only its process can tell that it has them. It reports
by itself, now and then (acker/collectors/holding.py); each report is shown with its time, because nobody else
knows what the process has done since.

Terms: a tree is all that comes of one record; an anchor is the number of a tree.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import numpy as np
import numpy.typing as npt

from acker.errors import UnreadableRecord
from acker.ledger.calls.core import Core
from acker.ledger.fields import HIDDEN, Count, Instant
from acker.ledger.ids import Ids
from acker.ledger.steps import scripts
from acker.store import keys
from acker.store.operation import Operation, command
from acker.store.records import Bounds, Name, Record, passing_over
from acker.store.records import Count as Stored
from acker.store.replies import pairs, whole

MOST = 1_000
"""Most edges of a report: a tuple has one in each of its trees."""
MOST_PROCESSES = 100
"""Most processes of a topology whose reports are kept: the least recent one goes first."""
MOST_NAMED = 32
"""Most steps of a report."""
_LIFE = 86_400
_TEXT = 200
_LATEST = 253_402_300_799_000  # the end of the year 9999, in milliseconds: the last date
Edges = np.dtype([("anchor", "<i8"), ("own", "<i8"), ("age", "<u4"), ("step", "u1")])
"""Edges of held tuples: the tree, the tuple's own id there, ms since it was taken, number of its step."""


@dataclass(frozen=True, slots=True)
class Process(Record, label="the process of a report"):
    """The head of a report.

    steps: their names. more: number of held tuples that the report does not name, or not in all their trees.
    passed_over: True if the process took more than it can note lately, and may hold some of those, too.
    """

    host: Annotated[str, Bounds(0, _TEXT)]
    program: Annotated[str, Bounds(0, _TEXT)]
    pid: Stored
    steps: Annotated[tuple[Name, ...], Bounds(0, MOST_NAMED)]
    more: Stored
    passed_over: bool = False

    @property
    def unnamed(self) -> str:
        """In words: what it holds, or may hold, and the report does not name; "" for nothing."""
        more = f"had {self.more:,} tuples more than it named" if self.more else ""
        passed = "took more tuples than it can note" if self.passed_over else ""
        what = " and ".join(filter(None, (more, passed)))
        return what and f"process {self.pid} on host {self.host} ({self.program}) {what}"


@dataclass(frozen=True, slots=True)
class Held:
    """A tuple that a bolt in plain Python has taken, and had not ended when its process last said so."""

    step: Annotated[str, "The bolt that has taken it."]
    host: Annotated[str, "Of its process."]
    pid: Annotated[Count, "The number of its process."]
    program: Annotated[str, "The program of its process."]
    since: Annotated[Instant, "When the bolt took it."]
    reported: Annotated[Instant, "When the process last said so: nobody knows what it has done since."]
    anchor: Annotated[int, HIDDEN] = 0
    own: Annotated[int, HIDDEN] = 0

    def text(self) -> Annotated[str, "All of it, for people."]:
        """The hold, for people: of each time the minute, by which many tuples have one text."""
        since, said = map(_minute, (self.since, self.reported))
        said = said.removeprefix(since[: len("2026-11-28 ")])
        return f"{self.step} had it since {since} UTC, as it said last at {said}, {self.place()}"

    def place(self) -> str:
        """The process, for people."""
        return f"on host {self.host}, process {self.pid} ({self.program})"


@dataclass(frozen=True, slots=True)
class Report:
    """The last report of a process. at: Unix seconds, by the store's clock."""

    process: Process
    at: float
    edges: npt.NDArray[np.void]

    @property
    def anchors(self) -> Ids:
        """The trees of its tuples."""
        return self.edges["anchor"].astype(np.int64)

    def holds(self, places: Sequence[int]) -> Iterator[Held]:
        """The tuples at some places of the edges."""
        process = self.process
        for anchor, tuple_id, age, step in self.edges[list(places)].tolist():
            since = max(0.0, self.at - age / 1000)
            yield Held(
                process.steps[step],
                process.host,
                process.pid,
                process.program,
                since,
                self.at,
                anchor,
                tuple_id,
            )


def note(
    core: Core, name: str, number: int, process: Process, edges: npt.NDArray[np.void]
) -> Operation[None]:
    """Notes the tuples that a process holds, in place of its earlier report.

    Args:
        core: The topology.
        name: A name of the process, unique in time and space.
        number: The number of the report, from 1.
        process: The head of the report.
        edges: The edges of its tuples, `MOST` at most.

    Raises:
        StoreError: The store refuses it.
    """
    record = f"{process.dump()}\n".encode() + edges.tobytes() if len(edges) or process.unnamed else b""
    life = int((_LIFE + 3 * core.config.message_timeout) * 1000)
    call = partial(scripts.note_held, core.config.name, name, number, record, MOST_PROCESSES, life)
    yield from core.make(call)


def reports(core: Core) -> Operation[list[Report]]:
    """The reports of all processes that hold something, without unreadable ones."""
    [stored] = yield [command("HGETALL", keys.steps(core.config.name, "held"))]
    readable = list[Report]()
    for value in pairs(stored).values():
        with passing_over("reports of held tuples"):
            head, _, record = value.partition(b"\n")
            ms, _, numbered = head.partition(b" ")
            described = numbered.partition(b" ")[2]
            if described:
                readable.append(_report(whole(ms, "the time of a report"), described, record))
    return readable


def _report(ms: int, described: bytes, record: bytes) -> Report:
    process = Process.load(described)
    if len(record) % Edges.itemsize or len(record) > MOST * Edges.itemsize:
        raise UnreadableRecord(f"not the edges of a report: {len(record):,} bytes")
    edges = np.frombuffer(record, Edges)
    if len(edges) and int(edges["step"].max()) >= len(process.steps):
        raise UnreadableRecord("not the edges of a report: a step without a name")
    return Report(process, min(ms, _LATEST) / 1000, edges)


def of_tree(core: Core, anchor: int) -> Operation[list[Held]]:
    """The held tuples of a tree, each once: the same tuple may have come to two processes."""
    held: dict[int, Held] = {}
    for report in sorted((yield from reports(core)), key=lambda report: report.at):
        held |= {one.own: one for one in report.holds(np.flatnonzero(report.anchors == anchor).tolist())}
    return sorted(held.values(), key=lambda one: one.since)


def texts(held: Iterable[Held]) -> list[str]:
    """Held tuples of a tree, for people: each text once, with the number of its tuples if it has several."""
    counted = Counter(one.text() for one in held)
    return [text if number == 1 else f"{text}: {number:,} tuples of it" for text, number in counted.items()]


def _minute(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")
