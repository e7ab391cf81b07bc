"""Worlds of commits: drivers of one batch, others that take it over, and readers of the published rows."""

from collections import Counter
from contextlib import suppress
from typing import Any, ClassVar

import pyarrow as pa

from acker.errors import AckerError, UnknownSubscription
from acker.inspect.operate.ticker_hooks import HOOKS
from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.tick import tick
from acker.store import keys
from acker.store.operation import Operation
from acker.streams import StreamReader
from acker.streams.commits import commit, release
from acker.streams.commits.contents import Commit
from acker.streams.log import schemas, subscriptions
from acker.streams.log.subscriptions import DEFAULT, RERUN_TTL, Range
from acker.streams.staging import effects, staging
from acker.streams.staging.effects import EFFECT
from acker.streams.staging.staging import FAILED, Staged, Staging
from acker.streams.upkeep import retention
from tests.helpers.builders.ledgers import confirm_all
from tests.helpers.builders.streaming import emit, take
from tests.helpers.builders.tickers import silence
from tests.helpers.faults.simulator import World
from tests.helpers.models.leaks import assert_settled
from tests.helpers.models.ledger_state import read_all, told

SLAB = 3
HORIZON = 7 * 86_400_000
WORDS = pa.schema([("word", pa.string()), ("_acker", pa.int64())])


class Outcomes:
    """The outcomes of a spout, by anchor."""

    def __init__(self, ledger: Ledger, counts: dict[bytes, int], spout: str = "s") -> None:
        self.by_anchor: dict[int, list[tuple[str, str]]] = {}
        for entry in read_all(ledger, OutcomeReader(ledger.core, spout)):
            for anchor, status, reason in told(entry, counts):
                self.by_anchor.setdefault(anchor, []).append((status, reason))

    def of(self, anchor: int) -> str:
        """The end of a tree; "" where it has not ended."""
        ended = self.by_anchor.get(anchor, [])
        assert len(ended) < 2, f"a tree has one outcome: {ended}"
        return ended[0][0] if ended else ""


class CommitWorld(World):
    """A batch of two segments, which a query commits, or another reader when it is given back.

    Two drivers of the query make different things of the batch, as a run does that computes other rows. Each
    fails the second tree. The second has no rows of the first tree, and one of each other; the others have
    two. By some seeds the query's batch fails as a whole. What each makes is the model: the store has all
    that one of them has made, once, and nothing else.
    """

    actors: ClassVar[tuple[str, ...]] = ("first", "second", "other")
    events: ClassVar = ("consume", "tick", "silence", "unregister", "day")
    scripts: ClassVar = (
        "stage", "begin_commit", "bind_reader", "advance_commit", "apply_staged", "fail", "record_effects",
        "publish", "note_segments", "chain",
    )  # fmt: skip

    def __init__(self, url: str, cluster: bool = False, seed: int = 0) -> None:
        super().__init__(url, cluster, seed)
        self.anchors = [int(one) for _ in range(2) for one in emit(self.ledger, SLAB, slab=SLAB)]
        self.ledger.run(schemas.record(self.ledger.core, "words", WORDS))
        self.ledger.run(subscriptions.subscribe(self.ledger.core, "words", DEFAULT))
        self.batch = take(self.ledger, "lines")
        self.reader = StreamReader(self.ledger, "words")
        self.seen = Counter[str]()
        self.committed = set[str]()
        self.lasting = set[str]()
        """The drivers whose commits have ended since the store lost something."""
        self.ticks = 0
        self.silent, self.fails = False, seed % 4 == 3
        self.also = set[str]()
        self.read_before = False
        """True if rows were read that the store may have lost since."""

    @staticmethod
    def made_by(name: str) -> dict[int, list[str]]:
        """The words of each tree, by its place."""
        copies = 1 if name == "second" else 2
        words = {place: [f"{name} {place}.{n}" for n in range(copies)] for place in range(2 * SLAB)}
        words[1] = []
        if name == "second":
            words[0] = []
        return words

    def staged(self, ledger: Ledger, name: str) -> Operation[tuple[Staged, ...]]:
        """A task: stages its rows by twos, a tree that fails, and an effect for each tree."""
        core, made = ledger.core, self.made_by(name)
        words = [(word, self.anchors[place]) for place, some in made.items() for word in some]
        rows = pa.Table.from_arrays([pa.array(column) for column in zip(*words, strict=True)], schema=WORDS)
        emitted = yield from staging.stage(core, Staging("words", rows=5), rows.to_batches())
        failing = pa.table(
            {
                "_acker": self.anchors[1:3],
                EFFECT: pa.array([self.digest(name, place) for place in (1, 2)], pa.binary()),
                FAILED: pa.array(["bad", None], pa.string()),
            }
        )
        how = Staging("", failures_only=True, effects_horizon=HORIZON)
        return emitted, (yield from staging.stage(core, how, failing.to_batches()))

    @staticmethod
    def digest(name: str, place: int) -> bytes:
        """The effect of a tree's row."""
        return f"{name:>15}{place}".encode()

    def first(self, ledger: Ledger, name: str = "first") -> Operation[None]:
        """A driver of the batch."""
        what = Commit(inputs=(self.batch,), failed="why")
        if not self.fails:
            what = Commit((yield from self.staged(ledger, name)), (self.batch,))
        if (yield from commit.commit(ledger.core, "query", 0, what)):
            self.committed.add(name)
            self.lasting.add(name)

    def second(self, ledger: Ledger) -> Operation[None]:
        """Another driver of it."""
        return self.first(ledger, "second")

    def other(self, ledger: Ledger) -> Operation[None]:
        """Somebody gives the query's segments back, and another reader commits what it gets."""
        core, batch = ledger.core, self.batch
        yield from release.give_back(core, "lines", batch.slot, batch.reader)
        end = yield from subscriptions.claim(core, "lines", batch.slot, "other", 0, name=DEFAULT)
        if end:
            staged = yield from self.staged(ledger, "other")
            what = Commit(staged, (Range("lines", batch.slot, "other", 0, end),))
            if (yield from commit.commit(core, "others", 0, what)):
                self.committed.add("other")
                self.lasting.add("other")

    def consume(self) -> None:
        """Reads what is published, and acks it."""
        self.seen.update(str(row["word"]) for row in self.reader.rows())
        self.reader.ack()

    def lose(self) -> None:
        """Notes a loss of the store: rows that were read may be published, and read, again."""
        self.read_before = bool(self.seen)
        self.lasting.clear()

    def tick(self) -> None:
        """Time passes, and a ticker looks: nothing of a commit expires that somebody carries out."""
        self.ticks += 1
        under_way = any(name.endswith(b":at") for name in self.registered())
        before = self.ledger.counters()["expired"]
        pass_time(self.ledger)
        if under_way and not self.silent:
            assert self.ledger.counters()["expired"] == before

    def registered(self) -> list[bytes]:
        """The commits under way, as the store has them."""
        raw: Any = self.raw
        return list(raw.hkeys(keys.committing("t")))

    def silence(self) -> None:
        """Makes the executor of each commit miss so many heartbeats that it counts as dead."""
        self.silent = True
        silence(self.ledger)

    def unregister(self) -> None:
        """An entry of the commits under way is lost."""
        for name in self.registered():
            self.raw.hdel(keys.committing("t").decode(), name.decode())

    def day(self) -> None:
        """Times to live and ticks forget what they do in a day."""
        pass_a_day(self)

    @property
    def outcomes(self) -> Outcomes:
        """The ends of the trees."""
        return Outcomes(self.ledger, {ids.slab_of(one): SLAB for one in self.anchors})

    def rerun(self) -> None:
        """The batch runs again until it is committed, as Spark has it; where it was given back, elsewhere."""
        for _ in range(3):
            for act in (self.first, self.other):
                try:
                    self.ledger.run(act(self.ledger))
                except AckerError:
                    continue
                if not self.begun["other"]:
                    break

    def check(self) -> None:
        """All that one driver has made is there, once; each tree has one outcome, as that has it."""
        self.rerun()
        self.check_early()
        self.consume()
        if self.simulator.losses:
            self.check_lost()
        else:
            self.check_exact()

    def check_early(self) -> None:
        """No tree is acked while rows of it are unread."""
        outcomes = self.outcomes
        for place, anchor in enumerate(self.anchors):
            if outcomes.of(anchor) == "acked":
                assert any(self.is_done(place, name) for name in self.actors), (place, self.seen)

    def is_done(self, place: int, name: str) -> bool:
        """True if all rows that a driver makes of a tree were read."""
        return place != 1 and all(self.seen[word] for word in self.made_by(name)[place])

    def check_exact(self) -> None:
        """Checks a history in which the store lost nothing."""
        outcomes = self.outcomes
        if self.fails and not self.seen:
            endings = {outcomes.of(one) for one in self.anchors}
            assert endings <= {"failed", *["expired"] * (self.ticks > 2)}
            return
        [name] = [name for name in self.actors if self.seen[f"{name} 2.0"]]
        assert self.seen == Counter(word for words in self.made_by(name).values() for word in words)
        assert self.committed <= {name}
        for place, anchor in enumerate(self.anchors):
            late = {"expired"} if self.ticks > 2 else set()
            assert outcomes.of(anchor) in {"failed" if place == 1 else "acked", *late, *self.also}
        digests = [self.digest(one, place) for one in self.actors for place in (1, 2)]
        known, *_ = self.ledger.run(effects.find_recorded(self.ledger.core, HORIZON, digests))
        assert known == {self.digest(name, 2)}
        self.end()
        assert_settled(self.raw)

    def check_lost(self) -> None:
        """Checks after a loss of the store: no record is acked because of it."""
        self.end()
        if not self.read_before and not self.simulator.cluster:
            assert set(self.seen.values()) <= {1}, self.seen
            assert len({word.partition(" ")[0] for word in self.seen}) <= 1, self.seen
        outcomes = self.outcomes
        for place, anchor in enumerate(self.anchors):
            if outcomes.of(anchor) == "acked":
                assert any(self.is_done(place, name) for name in self.actors), (place, self.seen)
            if self.lasting == {"other"} and place != 1 and not self.simulator.cluster:
                assert outcomes.of(anchor) != "failed", "no driver fails trees of a batch that it has lost"

    def end(self) -> None:
        """All is over: what is still pending expires."""
        for _ in range(4):
            self.consume()
            pass_time(self.ledger)
        if not self.simulator.losses:
            confirm_all(self.ledger)
            for _ in range(4):
                self.ledger.tick(force=True)


def pass_time(ledger: Ledger) -> None:
    """A ticker's round, with all that it looks after."""
    assert HOOKS.before_rotation is not None
    ledger.run(HOOKS.before_rotation(ledger.core))
    ledger.run(tick.tick(ledger.core, force=True, explain=HOOKS.explain))


def pass_a_day(world: World) -> None:
    """All goes that has less than a day to live, and what shards remember of writers."""
    raw: Any = world.raw
    for shard in world.ledger.core.shards:
        raw.delete(*shard.declared([])[7:9])
    for key in list(raw.scan_iter("acker:{t*")):
        if 0 < raw.ttl(key) <= RERUN_TTL + 60:
            raw.delete(key)


class DropWorld(CommitWorld):
    """The same, with a second subscription of what is published, which somebody drops meanwhile.

    Rows that wait for it are acked for it, or their trees fail, by the seed; all are there for the first.
    """

    actors: ClassVar = ("first", "second", "drop", "drop_too")
    settings: ClassVar = {"ackers": 1}

    def __init__(self, url: str, cluster: bool = False, seed: int = 0) -> None:
        super().__init__(url, cluster, seed)
        self.ledger.run(subscriptions.subscribe(self.ledger.core, "words", "second"))
        self.also = {"failed"} if seed % 2 else set()

    def drop(self, ledger: Ledger) -> Operation[None]:
        """Drops the subscription; another may have, or have died in the middle."""
        with suppress(UnknownSubscription):
            yield from retention.unsubscribe(ledger.core, "words", "second", ack=not self.also)

    def drop_too(self, ledger: Ledger) -> Operation[None]:
        """Drops it, too."""
        return self.drop(ledger)

    def check(self) -> None:
        """It is dropped in the end."""
        self.rerun()
        self.ledger.run(self.drop(self.ledger))
        super().check()
