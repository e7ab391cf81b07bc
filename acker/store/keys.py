"""Every key in the store. All keys of a shard carry one hash tag, so a call stays in one slot."""

from collections.abc import Iterable, Sequence

TOPOLOGIES = b"acker:topologies"
"""Set of the names of all topologies."""


SPOUT_FIELD = "spout:"
"""What the fields of a configuration begin with that name spouts."""


def config(topology: str) -> bytes:
    """Hash: a topology's configuration, and `spout:<name>` (`SPOUT_FIELD`) for each of its spouts."""
    return f"acker:{{{topology}}}:config".encode()


def history(topology: str, step: int) -> bytes:
    """Stream: readings of a topology's counters, one every `step` seconds (record_history.lua)."""
    return f"acker:{{{topology}}}:history:{step}".encode()


def turn(topology: str) -> bytes:
    """String: who writes the next reading of a topology's counters. It has a time to live."""
    return f"acker:{{{topology}}}:turn".encode()


def idempotency_key(topology: str, name: str) -> bytes:
    """Hash: what a key of a caller's stands for (idempotency_keys.py). It has a time to live."""
    return f"acker:{{{topology}}}:idempotency_key:{name}".encode()


def streams(topology: str) -> bytes:
    """Set: the names of a topology's streams."""
    return f"acker:{{{topology}}}:streams".encode()


def lines(topology: str) -> bytes:
    """Hash: the lines of a topology (declare_line.lua)."""
    return f"acker:{{{topology}}}:lines".encode()


def commits(topology: str, writer: str) -> bytes:
    """Hash: the last commits of a writer of streams (begin_commit.lua)."""
    return f"acker:{{{topology}}}:commits:{writer}".encode()


def committing(topology: str) -> bytes:
    """Hash: commits that are under way, and when each was last seen to be (beat_commit.lua)."""
    return f"acker:{{{topology}}}:committing".encode()


def notes(topology: str, query: str, run: str, batch: int) -> bytes:
    """Set: which ranges of which streams a batch reads, in a run of its query."""
    return f"acker:{{{topology}}}:notes:{query}:{run}:{batch}".encode()


def tracked(topology: str, query: str, run: str, batch: int) -> bytes:
    """Hash: what the tasks of a batch of a query have made roots of, by task."""
    return f"acker:{{{topology}}}:tracked:{query}:{run}:{batch}".encode()


def trackers(topology: str, source: str) -> bytes:
    """Hash: the queries that track the rows of one call of `track` (acker/spark/queries/conflicts.py)."""
    return f"acker:{{{topology}}}:tracked:by:{source}".encode()


def suspect(topology: str, name: str) -> bytes:
    """String: a task works on records, or did not end; or one was found that ends its process."""
    return f"acker:{{{topology}}}:suspect:{name}".encode()


def verdict(topology: str, query: str, run: str) -> bytes:
    """String: what the plan of a query's run was found to do (acker/spark/queries/plan_check.py)."""
    return f"acker:{{{topology}}}:verdict:{query}:{run}".encode()


def effects(topology: str, token: str) -> bytes:
    """String: digests of effects, staged for a commit to record or to pass over."""
    return f"acker:{{{topology}}}:effects:{token}".encode()


def health(topology: str) -> bytes:
    """Hash: the thresholds of a topology, and since when it has troubles.

    See acker/inspect/topology/health.py.
    """
    return f"acker:{{{topology}}}:health".encode()


def steps(topology: str) -> bytes:
    """Hash: who works on the topology, and when that was last seen (acker/ledger/steps/step_registry.py)."""
    return f"acker:{{{topology}}}:steps".encode()


def step_numbers(topology: str) -> bytes:
    """Hash: name of a step -> the number by which marks name it (number_step.lua)."""
    return f"acker:{{{topology}}}:step_numbers".encode()


class Stream:
    """The keys of one stream of a topology: all in one slot, which is not that of any shard."""

    __slots__ = ("_prefix", "drops", "entries", "schema", "subscriptions")

    def __init__(self, topology: str, stream: str) -> None:
        self._prefix = prefix = f"acker:{{{topology}/{stream}}}:".encode()
        self.entries = prefix + b"entries"
        """Stream: one entry for each published segment."""
        self.schema = prefix + b"schema"
        """String: the schema of its rows."""
        self.subscriptions = prefix + b"subscriptions"
        """Hash: its subscriptions, and counts (streams.lua)."""
        self.drops = prefix + b"drops"
        """Stream: what it has dropped lately (drop_segments.lua)."""

    def payload(self, token: str) -> bytes:
        """String: the rows of a segment. It has a time to live until the segment is published."""
        return self._prefix + b"payload:" + token.encode()

    def owed(self, token: str) -> bytes:
        """Hash: which subscriptions a segment is for, and what they did (note_segments.lua)."""
        return self._prefix + b"owed:" + token.encode()

    @property
    def gathering(self) -> bytes:
        """Sorted set: "<group>:<task>" of what waits in a stream that gathers, by when it came first (ms)."""
        return self._prefix + b"gathering"

    @property
    def gone(self) -> bytes:
        """Sorted set: groups of a stream that gathers which have gone, by when (ms; release.lua)."""
        return self._prefix + b"gone"

    def gathered(self, group: str, task: int) -> bytes:
        """Stream: the segments of a stream that gathers which wait for a group and a task."""
        return self._prefix + b"gathered:%s:%d" % (group.encode(), task)

    def progress(self, group: str) -> bytes:
        """Hash: which requests of a group are over in a section (note_arrivals.lua)."""
        return self._prefix + b"progress:" + group.encode()

    @property
    def volumes(self) -> bytes:
        """String: about how many rows of each key were written lately (count_volumes.lua)."""
        return self._prefix + b"volumes"

    def workers(self, slot: int) -> bytes:
        """Hash: reader of a worker -> until when it counts as alive (lease.lua)."""
        return self._prefix + b"workers:%d" % slot

    def taken(self, slot: int, reader: str) -> bytes:
        """Stream: the segments that a subscription gave a reader, numbered 1-0, 2-0 ..."""
        return self._prefix + b"taken:%d:" % slot + reader.encode()

    def bound(self, slot: int, reader: str) -> bytes:
        """Hash: which commits have a reader's segments, and if some were given back (bind_reader.lua)."""
        return self._prefix + b"bound:%d:" % slot + reader.encode()

    def holder(self, slot: int, reader: str) -> bytes:
        """String: for which batch a reader's segments are read (acker/streams/log/holders.py)."""
        return self._prefix + b"holder:%d:" % slot + reader.encode()

    def of_reader(self, slot: int, reader: str) -> list[bytes]:
        """All keys that are of one reader."""
        return [self.taken(slot, reader), self.bound(slot, reader), self.holder(slot, reader)]

    def returned(self, slot: int) -> bytes:
        """Stream: segments of a subscription whose reader is gone, for any other."""
        return self._prefix + b"returned:%d" % slot

    def readers(self, slot: int) -> bytes:
        """Hash: a subscription's readers (claim_segments.lua)."""
        return self._prefix + b"readers:%d" % slot

    def beats(self, slot: int) -> bytes:
        """Hash: reader -> when its query was last seen to run (ms; acker/streams/downtime.py)."""
        return self._prefix + b"beats:%d" % slot

    def stale(self, token: str, slot: int) -> bytes:
        """String: the stale rows of a segment were counted for a subscription (count_stale.lua)."""
        return self._prefix + b"stale:" + token.encode() + b":%d" % slot

    def skipped(self, token: str) -> bytes:
        """Hash: what a batch leaves out of what it reads (acker/streams/staging/skipped.py)."""
        return self._prefix + b"skipped:" + token.encode()

    def marker(self, token: str) -> bytes:
        """String: a segment without a commit was published (publish_once.lua)."""
        return self._prefix + b"published:" + token.encode()


class Spout:
    """The keys of a spout's kept rows and dead letters: all in one slot, which is not that of any shard."""

    COUNTS = ("pending", "acked", "replayed", "dead")
    """Fields of `counts` that are numbers of rows."""
    TAKEN = "told"
    """Field of `counts`: somebody takes the outcomes, so nobody else settles them."""

    __slots__ = ("_prefix", "counts", "dead", "highest", "kept")

    def __init__(self, topology: str, spout: str) -> None:
        self._prefix = prefix = f"acker:{{{topology}@{spout}}}:".encode()
        self.kept = prefix + b"kept"
        """Hash: the roots whose rows are kept."""
        self.counts = prefix + b"counts"
        """Hash: how many rows are pending, and how many were settled how."""
        self.highest = prefix + b"highest"
        """Hash: partition of the source -> the offset after its highest row."""
        self.dead = prefix + b"dead"
        """Stream: the facts of each dead letter (acker/streams/sources/dead_letter_store.py)."""

    @property
    def letters(self) -> bytes:
        """Hash: number of a dead letter -> record of its roots, and its row."""
        return self._prefix + b"letters"

    @property
    def slabs(self) -> bytes:
        """Hash: which rows a slab is of."""
        return self._prefix + b"slabs"

    @property
    def times(self) -> bytes:
        """Sorted set: when roots were kept, or last looked after."""
        return self._prefix + b"times"

    def rows(self, token: str) -> bytes:
        """String: the rows of roots. It has a time to live until they are kept."""
        return self._prefix + b"rows:" + token.encode()

    def declared(self) -> list[bytes]:
        """The keys that every script on kept rows declares first (kept.lua)."""
        prefix = self._prefix
        return [self.kept, self.slabs, prefix + b"masks", prefix + b"left", self.counts, self.times]


FUNCTIONS = b"acker:functions"
"""Hash: the functions of all topologies (acker/drpc/registry.py)."""


def around_shard(topology: str, shards: int) -> tuple[bytes, bytes]:
    """The parts of keys of shards before and behind their number, in their tag (claim_and_look.lua)."""
    return f"acker:{{{topology}:".encode(), f"/{shards}}}:".encode()


class Shard:
    """The keys of one shard of a topology (shard.lua says what each holds).

    shards: how many the topology has. It is part of every key: the shard of a tree follows from it, so a
    process that knows a topology of another number, removed and made anew since, finds no shard of this one.
    """

    __slots__ = (
        "_fixed",
        "_prefix",
        "counters",
        "early",
        "latency",
        "message_ids",
        "number",
        "ones",
        "slabs",
    )

    def __init__(self, topology: str, number: int, shards: int) -> None:
        self.number = number
        before, behind = around_shard(topology, shards)
        self._prefix = prefix = b"%b%d%b" % (before, number, behind)
        self.slabs = prefix + b"slabs"
        self.message_ids = prefix + b"message_ids"
        self.counters = prefix + b"counters"
        self.latency = prefix + b"latency"
        self.ones = prefix + b"ones"
        self.early = prefix + b"early"
        self._fixed = [
            self.clock,
            self.slabs,
            self.message_ids,
            prefix + b"failures",
            prefix + b"confirmed",
            self.counters,
            self.latency,
            prefix + b"writers",
            prefix + b"writers_before",
            prefix + b"scratch",
            *self.buckets(),
            prefix + b"operand",
            self.recent,
            self.ones,
            prefix + b"finished",
            self.early,
        ]

    @property
    def clock(self) -> bytes:
        """Hash: rotations and when they were made."""
        return self._prefix + b"clock"

    @property
    def recent(self) -> bytes:
        """Stream: the latest trees that failed or expired (recent.lua)."""
        return self._prefix + b"recent"

    def bucket(self, number: int) -> bytes:
        """Set: the slabs in one of the three time buckets."""
        return self._prefix + b"bucket:%d" % number

    def buckets(self) -> list[bytes]:
        """The three time buckets."""
        return [self.bucket(number) for number in range(3)]

    def expired(self, rotation: int) -> bytes:
        """Set: the slabs that a rotation set aside."""
        return self._prefix + b"expired:%d" % rotation

    @property
    def step_counts(self) -> bytes:
        """Hash: what each step has done in this shard, by its number (marks.lua)."""
        return self._prefix + b"step_counts"

    def marks(self, rotation: int) -> bytes:
        """Hash: which steps have acked tuples of which slabs since a rotation, and when."""
        return self._prefix + b"marks:%d" % (rotation % 4)

    def of_steps(self) -> list[bytes]:
        """What notes the acks of steps: `step_counts`, and the four hashes of marks."""
        return [self.step_counts, *(self.marks(rotation) for rotation in range(4))]

    @property
    def traces(self) -> bytes:
        """Stream: the traces of this shard that were begun lately (note_trace.lua)."""
        return self._prefix + b"traces"

    def trace(self, anchor: int) -> bytes:
        """Hash: the events of a traced tree. It has a time to live."""
        return self._prefix + b"trace:%d" % anchor

    def vector(self, slab: bytes) -> bytes:
        """String: the ack vector of a slab."""
        return self._prefix + b"ack:" + slab

    def vectors(self, slabs: Sequence[bytes]) -> list[bytes]:
        """The ack vectors of slabs."""
        prefix = self.vector(b"")
        return [prefix + slab for slab in slabs]

    def staged(self, token: str, slot: int) -> bytes:
        """Hash: a segment's XOR vectors for this shard and a subscription (stage.lua)."""
        return self._prefix + b"staged:" + token.encode() + b":%d" % slot

    def made(self, commit: str) -> bytes:
        """Hash: what a commit has emitted and failed in this shard (made.lua)."""
        return self._prefix + b"made:" + commit.encode()

    def failing(self, token: str) -> bytes:
        """Hash: trees of this shard that a commit is to fail, and why (acker/streams/staging/staging.py)."""
        return self._prefix + b"failing:" + token.encode()

    def effects(self, horizon: int, generation: int, partition: int) -> bytes:
        """Set: digests of effects (acker/streams/staging/effects.py)."""
        return self._prefix + b"once:%d:%d:%d" % (horizon, generation, partition)

    def effect_count(self, horizon: int, generation: int) -> bytes:
        """String: how many digests all partitions of a generation hold."""
        return self._prefix + b"once:%d:%d:count" % (horizon, generation)

    def outcomes(self, spout: str) -> bytes:
        """Stream: outcomes that a spout has not confirmed yet."""
        return self._prefix + b"outcomes:" + spout.encode()

    def declared(self, spouts: Iterable[str]) -> list[bytes]:
        """The keys that every operation declares first, in their order."""
        return [*self._fixed, *(self.outcomes(spout) for spout in spouts)]
