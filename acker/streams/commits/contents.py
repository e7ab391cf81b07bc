"""The commit record: a commit's whole work, so that any process can finish it (commit.py).

Terms: a tree is all that comes of one record; a segment is some thousand rows of a stream, stored and acked
as one piece; roots are rows of a spout that were staged together, and get a tree each; a gate is an id that
keeps a tree open until rows may come into it; staged rows are stored, but nobody sees them before a commit.
"""

from dataclasses import astuple, dataclass, replace

from acker.ledger.calls.marks import Mark
from acker.store.records import HexId, Record
from acker.streams.commits.origins import Origin
from acker.streams.log.segments import Segment
from acker.streams.log.subscriptions import Range
from acker.streams.sources.kept_rows import Settled
from acker.streams.sources.roots import Roots
from acker.streams.staging.external.rows.sending import Sending
from acker.streams.staging.staging import Staged


@dataclass(frozen=True, slots=True)
class Commit(Record, label="a commit"):
    """The work of a commit: tracks roots, publishes staged segments, fails trees, acks its inputs.

    Attributes:
        staged: The results of the batch's tasks.
        inputs: Ranges of streams to ack, and roots, which are tracked before anything else.
        failed: A cause (`acker.ledger.slabs.causes`, as text): all trees of the inputs fail with it instead
            of being acked.
        settled: Outcomes of a spout that the commit settles.
        origin: The batch of the commit, if known.
        by: The step and the batch to note for the commit, if any.
        gates: Staged segments that close the next section of requests. They open when the rest of the commit
            is done.
        sent: Segments of external streams to emit, by stream and key.
        received: Ids of staged receipts: the rows of external streams that were worked on
            (`acker.streams.commits.receipts`).
        delivered: True if the commit requires that its readers still hold the inputs. A store that was rolled
            back hands inputs out again. A worker can redo its work then, and with this flag nothing takes
            effect twice.
    """

    staged: tuple[Staged, ...] = ()
    inputs: tuple[Range | Roots, ...] = ()
    failed: str | None = None
    settled: Settled | None = None
    origin: Origin | None = None
    by: Mark | None = None
    gates: tuple[Segment, ...] = ()
    delivered: bool = False
    sent: tuple[Sending, ...] = ()
    received: tuple[HexId, ...] = ()

    def dump(self) -> str:
        """The commit as stored: the same text in whatever order its tasks ended."""
        ranges = self.ranges()
        if len(ranges) < 2:
            return Record.dump(self)
        return Record.dump(replace(self, inputs=(*sorted(set(ranges), key=astuple), *self.roots())))

    def ranges(self) -> list[Range]:
        """The inputs that are ranges of streams."""
        return [one for one in self.inputs if isinstance(one, Range)]

    def roots(self) -> list[Roots]:
        """The inputs that are tracked."""
        return [one for one in self.inputs if isinstance(one, Roots)]

    def segments(self) -> list[tuple[str, Segment]]:
        """Stream and segment of each segment to publish."""
        return [(piece.stream, segment) for piece in self.staged for segment in piece.segments]

    def external(self) -> list[Segment]:
        """The segments of external streams to emit."""
        return [segment for sending in self.sent for segment, _ in sending.segments]

    def failures(self) -> list[str]:
        """Ids of staged failures."""
        return [staged_id for piece in self.staged for staged_id in piece.failures]

    def effects(self) -> list[tuple[str, int]]:
        """Ids of staged effects and their horizons (ms)."""
        return [one for piece in self.staged for one in piece.effects]

    def results(self) -> list[tuple[str, str, int]]:
        """Keys of staged results of functions."""
        return [one for piece in self.staged for one in piece.results]

    def released(self) -> list[str]:
        """Ids of effects that are not recorded, because their rows failed."""
        return [staged_id for piece in self.staged for staged_id in piece.released]
