"""What a commit does, and how that is stored: whoever comes with its number can finish it (commit.py)."""

from dataclasses import astuple, dataclass, replace

from acker.ledger.calls.marks import Mark
from acker.store.records import Record
from acker.streams.commits.origins import Origin
from acker.streams.log.segments import Segment
from acker.streams.log.subscriptions import Range
from acker.streams.sources.kept_rows import Settled
from acker.streams.sources.roots import Roots
from acker.streams.staging.staging import Staged


@dataclass(frozen=True, slots=True)
class Commit(Record, what="a commit"):
    """What a commit does: tracks roots, publishes staged segments, fails trees, acks its inputs.

    inputs: ranges of streams, and roots, which are tracked before anything else.
    failed: a cause (`acker.ledger.slabs.causes`, as text) to fail all trees of the inputs for, in place of
    acking them. settled: outcomes of a spout that this is the answer to. origin: of which batch it is, if
    that is known. by: the step whose commit it is, and its batch, where they are to be noted. gates: what was
    staged of requests whose next section nothing keeps open any more, when the rest of the commit is done.
    taken: only where the store knows still that its readers took these inputs. One that was set back gives
    them again: who can work again on what it gets, as a worker, has nothing take effect twice by this.
    """

    staged: tuple[Staged, ...] = ()
    inputs: tuple[Range | Roots, ...] = ()
    failed: str | None = None
    settled: Settled | None = None
    origin: Origin | None = None
    by: Mark | None = None
    gates: tuple[Segment, ...] = ()
    taken: bool = False

    def dump(self) -> str:
        """The commit as it is stored: the same whichever of its tasks ended first."""
        ranges = self.ranges()
        if len(ranges) < 2:
            return Record.dump(self)
        return Record.dump(replace(self, inputs=(*sorted(set(ranges), key=astuple), *self.roots())))

    def ranges(self) -> list[Range]:
        """The inputs that are of streams."""
        return [one for one in self.inputs if isinstance(one, Range)]

    def roots(self) -> list[Roots]:
        """The inputs that are tracked."""
        return [one for one in self.inputs if isinstance(one, Roots)]

    def segments(self) -> list[tuple[str, Segment]]:
        """Stream and segment of all that is published."""
        return [(piece.stream, segment) for piece in self.staged for segment in piece.segments]

    def failures(self) -> list[str]:
        """Tokens of staged failures."""
        return [token for piece in self.staged for token in piece.failures]

    def effects(self) -> list[tuple[str, int]]:
        """Tokens of staged effects and their horizons (ms)."""
        return [one for piece in self.staged for one in piece.effects]

    def results(self) -> list[tuple[str, str, int]]:
        """Keys of staged results of functions."""
        return [one for piece in self.staged for one in piece.results]

    def released(self) -> list[str]:
        """Tokens of effects that are not to be recorded after all: their rows failed."""
        return [token for piece in self.staged for token in piece.released]
