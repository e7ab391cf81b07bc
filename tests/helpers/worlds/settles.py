"""The world of a spout that keeps its rows: they are written, worked on, settled, replayed and buried."""

from collections import Counter
from contextlib import suppress
from typing import ClassVar

import pyarrow as pa
import pytest

from acker.errors import AckerError
from acker.ledger.client import Ledger
from acker.ledger.ids import as_ids
from acker.ledger.slabs.causes import Cause
from acker.streams import StreamReader
from acker.streams.commits import commit
from acker.streams.commits.contents import Commit
from acker.streams.dead_letters import dead_letters
from acker.streams.sources import kept_rows
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import lost_trees, replays, settler
from acker.streams.spouts.backoff import SettleProgress
from acker.streams.spouts.rereading import Rereader
from acker.streams.staging.staging import Staging
from tests.helpers.builders.tickers import silence
from tests.helpers.faults.simulator import World
from tests.helpers.models.leaks import assert_settled
from tests.helpers.worlds.commits import pass_a_day, pass_time

ROWS = 3
ATTEMPTS = 2
HOW = SpoutOptions("s", "lines", "id", attempts=ATTEMPTS, attempt="attempt")


class SettleWorld(World):
    """A spout of which every third row always fails, and another third at first; two settlers.

    The model: a write has all of its rows or none. A row has one attempt after another, each is worked on
    once, and it ends as acked or as a dead letter; then nothing of it is kept.
    """

    actors: ClassVar = ("write", "settle", "settle_too", "replay", "track", "reread")
    events: ClassVar = ("work", "tick", "day")
    scripts: ClassVar = (
        "keep_rows", "track", "stage", "begin_commit", "advance_commit", "apply_staged", "publish", "settle",
        "bury", "confirm", "chain", "fill_rows",
    )  # fmt: skip
    settings: ClassVar = {"ackers": 2, "slab_limit": 2}
    ids: ClassVar[tuple[str, ...]] = ()

    def __init__(self, url: str, cluster: bool = False, seed: int = 0) -> None:
        super().__init__(url, cluster, seed)
        StreamSpout(self.ledger, HOW, ids=self.ids).write(self.rows("z"))
        self.written, self.unknown = {"z"}, set[str]()
        self.attempts = Counter[tuple[str, int]]()
        self.ended: dict[str, set[str]] = {}
        self.reader = StreamReader(self.ledger, "lines")
        self.ticks = 0
        self.replayed = set[str]()

    @staticmethod
    def rows(name: str) -> pa.Table:
        """The rows of a write."""
        return pa.table({"id": [f"{name}{n}" for n in range(ROWS)]})

    def write(self, ledger: Ledger) -> None:
        """A source: writes rows of which nobody else knows, and is killed perhaps."""
        name = "abcdefghijklmnoprstuvwxy"[self.begun["write"] - 1]
        self.unknown.add(name)
        StreamSpout(ledger, HOW, ids=self.ids).write(self.rows(name), timeout=0)
        self.written.add(name)

    def track(self, ledger: Ledger) -> None:
        """A query whose batch has the rows `q`: it is run again until it is committed."""
        self.unknown.add("q")
        batches = self.rows("q").to_batches()
        emitted = replays.emit_recorded(ledger.core, HOW, Staging("lines"), batches, ids=self.ids)
        made, staged = ledger.run(emitted)
        ledger.run(commit.commit(ledger.core, "query", 0, Commit((staged,), made)))
        self.written.add("q")

    def settle(self, ledger: Ledger) -> None:
        """A settler's round."""
        settler.settle(ledger, "s", self.note)

    def settle_too(self, ledger: Ledger) -> None:
        """Another settler, which keeps its progress from one round to the next."""
        progress: dict[str, SettleProgress] = {}
        for _ in range(2):
            settler.settle(ledger, "s", self.note, readings=progress)

    def reread(self, ledger: Ledger) -> None:
        """A process that asks the source: this spout keeps its rows."""

    def note(self, table: pa.Table) -> None:
        """The caller hears of outcomes, at least once each."""
        for row in table.to_pylist():
            if row["final"]:
                self.ended.setdefault(row["message_id"].decode(), set()).add(row["status"])

    def work(self) -> None:
        """A bolt works on all that there is, and fails some of it."""
        for row in self.reader.rows():
            name, attempt = str(row["id"]), row["attempt"]
            assert isinstance(attempt, int)
            self.attempts[name, attempt] += 1
            kind = int(name[-1]) % 3
            if kind == 0 or (kind == 1 and attempt == 1):
                cause = Cause("bad", "bolt").encode()
                anchors = as_ids([int(str(row["_acker"]))])
                self.ledger.send(self.ledger.core.fail(anchors, cause))
        self.reader.ack()

    def replay(self, ledger: Ledger) -> None:
        """Somebody has dead letters tried again."""
        for letter in ledger.run(dead_letters.page(ledger.core)).letters:
            ledger.run(dead_letters.replay(ledger.core, letter.id))
            self.replayed.add(letter.message_id.decode())

    def day(self) -> None:
        """Times to live and ticks forget what they do in a day."""
        pass_a_day(self)

    def tick(self) -> None:
        """Time passes."""
        self.ticks += 1
        pass_time(self.ledger)

    def pending(self) -> dict[str, int]:
        """The number of rows that the spout keeps, by state."""
        return self.ledger.run(kept_rows.pending(self.ledger.core, "s"))

    def check(self) -> None:
        """Each row ends once, after all its attempts."""
        for _ in range(3 if self.begun["track"] else 0):
            with suppress(AckerError):
                self.track(self.ledger)
        silence(self.ledger)  # of a commit that nobody carries out any more, trees expire
        for _ in range(5 * ATTEMPTS):
            self.work()
            self.settle(self.ledger)
            pass_time(self.ledger)
            self.recover()
        letters = [
            one.message_id.decode() for one in self.ledger.run(dead_letters.page(self.ledger.core)).letters
        ]
        # A node that alone lost the record of a commit has the rows of a batch that runs again twice.
        assert len(letters) == len(set(letters)) or (self.simulator.losses and self.simulator.cluster)
        names = {name[0] for name, _ in self.attempts}
        if self.simulator.losses:
            self.check_lost()
            return
        assert self.pending()["pending"] == 0, self.pending()
        assert self.written <= names <= self.written | self.unknown
        for name in sorted(f"{one}{n}" for one in names for n in range(ROWS)):
            self.check_row(name, name in letters)
        if self.ticks < 2 and names <= self.written and not self.replayed:
            last = Counter[str]()
            for name, attempt in self.attempts:
                last[name] = max(last[name], attempt)
            assert self.ledger.counters()["tracked"] == last.total()
        assert_settled(self.raw)

    def recover(self) -> None:
        """Looks for rows whose trees the ledger does not know, as a settler does after a while."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lost_trees, "AFTER", 0.0)
            settler.recover(self.ledger, "s")

    def check_lost(self) -> None:
        """Checks after a loss of the store: what is left ends, and each acked record was worked on."""
        for name, ended in self.ended.items():
            assert "acked" not in ended or any(row == name for row, _ in self.attempts)
        if not self.simulator.cluster:
            assert self.pending()["pending"] == 0, self.pending()
            assert {name for name in self.ended if name[0] == "z"} == {f"z{n}" for n in range(ROWS)}

    def check_row(self, name: str, dead: bool) -> None:
        """Checks the end of a row."""
        last = max(attempt for row, attempt in self.attempts if row == name)
        times = [self.attempts[name, attempt] for attempt in range(1, last + 1)]
        if name in self.replayed:  # it begins with its first attempt again
            assert all(times)
            return
        # A source that died in the middle of a write may have tracked rows that nobody sees before a replay.
        whole = name[0] in self.written
        assert set(times[not whole :]) <= {1}, (name, self.attempts)
        assert times[0] == 1 or not whole
        if self.ticks < 2:
            assert last in self.attempts_of(int(name[-1]) % 3) or not times[0]
            assert dead == (int(name[-1]) % 3 == 0)
        assert self.ended[name] == ({"failed"} if dead else {"acked"}) or self.ticks > 1, (name, self.ended)

    def attempts_of(self, kind: int) -> tuple[int, ...]:
        """The numbers of attempts that a row of a kind may have had at its end."""
        return (1,) if kind == 2 else (ATTEMPTS,)


class RereadWorld(SettleWorld):
    """The same of a spout that keeps ids. Its source forgets a row that always fails at every other look."""

    ids: ClassVar = ("id",)

    def __init__(self, url: str, cluster: bool = False, seed: int = 0) -> None:
        self.looks = seed
        super().__init__(url, cluster, seed)

    def reread(self, ledger: Ledger) -> None:
        """A process that asks the source."""
        Rereader(ledger, "s", self.source).step()

    def source(self, ids: pa.Table) -> pa.Table:
        """The rows of ids, as far as the source has them now."""
        self.looks += 1
        names = ids.column("id").to_pylist()
        return pa.table({"id": [name for name in names if self.looks % 2 or int(name[-1]) % 3]}, ids.schema)

    def settle(self, ledger: Ledger) -> None:
        """A settler's round in a process that asks the source, too."""
        self.reread(ledger)
        super().settle(ledger)

    def attempts_of(self, kind: int) -> tuple[int, ...]:
        """The numbers of attempts: a row that its source has no longer gets no further attempt."""
        return (1, ATTEMPTS) if kind == 0 else super().attempts_of(kind)
