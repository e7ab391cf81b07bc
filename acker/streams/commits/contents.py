"""What a commit does, and how that is stored: whoever comes with its number can finish it (commit.py)."""

from dataclasses import astuple, dataclass

from acker.ledger.calls.marks import Mark
from acker.store import records
from acker.streams.commits.origins import Origin
from acker.streams.log.segments import Segment
from acker.streams.log.subscriptions import Range
from acker.streams.sources.kept_rows import Settled
from acker.streams.sources.roots import Roots
from acker.streams.staging.staging import Staged


@dataclass(frozen=True, slots=True)
class Commit:
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
        """The commit as it is stored."""
        streams: dict[str, list[str]] = {}
        for piece in self.staged:
            streams.setdefault(piece.stream, []).extend(segment.record() for segment in piece.segments)
        ranges = self.ranges()
        if len(ranges) > 1:
            ranges = sorted(set(ranges), key=astuple)
        settled = self.settled and list(astuple(self.settled))
        return records.dump(
            {
                "segments": streams,
                "failures": self.failures(),
                "effects": self.effects(),
                "released": self.released(),
                "inputs": [one.place for one in ranges],
                "read": [(one.skipped, one.planned) for one in ranges],
                "failed": self.failed,
                "roots": [one.record() for one in self.roots()],
                "settled": settled,
                "of": self.origin and self.origin.dump(),
                "by": self.by and list(astuple(self.by)),
                "gates": [one.record() for one in self.gates],
                "results": self.results(),
                **({"taken": True} if self.taken else {}),
            },
        )

    @classmethod
    def load(cls, text: str | bytes) -> "Commit":
        """The inverse of `dump`."""
        with records.reading(text, "a commit") as stored:
            pieces = [
                Staged(stream, tuple(map(Segment.parse, found)))
                for stream, found in stored["segments"].items()
            ]
            had = tuple((token, horizon) for token, horizon in stored["effects"])
            pieces.append(Staged("", (), tuple(stored["failures"]), had, tuple(stored["released"])))
            given = stored.get("results", ())  # earlier versions stored none
            pieces.append(Staged("", results=tuple((name, token, ttl) for name, token, ttl in given)))
            inputs = stored["inputs"]
            read = stored.get("read") or [()] * len(inputs)  # earlier versions stored none
            ranges = [Range(*one, *had) for one, had in zip(inputs, read, strict=True)]
            tracked = [Roots.parse(record) for record in stored["roots"]]
            settled = None
            if stored["settled"]:
                spout, entries, letters, *more = stored["settled"]  # earlier versions stored three, or four
                places = tuple((shard, entry, digest) for shard, entry, digest in entries)
                unreadable, token = more[0] if more else (), more[1] if len(more) > 1 else ""
                settled = Settled(spout, places, tuple(letters), tuple(unreadable), token)
            of = stored.get("of")  # earlier versions stored none
            origin = None if of is None else Origin.load(of)
            by = stored.get("by")  # earlier versions stored none
            mark = Mark(*by) if by else None
            gates = tuple(map(Segment.parse, stored.get("gates", ())))  # earlier versions stored none
            how = (stored["failed"], settled, origin, mark, gates, bool(stored.get("taken")))
            return cls(tuple(pieces), (*ranges, *tracked), *how)

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
