"""Every key in the store. All keys of a shard carry one hash tag, so a call stays in one slot.

Terms: a slab is the trees of one call; a segment is a stored piece of a stream; a vector is XORs, by tree.
"""

from collections.abc import Iterable, Sequence

TOPOLOGIES = b"acker:topologies"
"""Set of the names of all topologies."""
LISTED = b"acker:{acker:topologies}:listed:"
"""Prefix of strings beside it, with a time to live: when a topology was listed (list_topology.lua)."""
SPOUT_FIELD = "spout:"
"""Prefix of the fields of a configuration that name spouts."""


def config(topology: str) -> bytes:
    """Hash: a topology's configuration, and `spout:<name>` (`SPOUT_FIELD`) for each of its spouts."""
    return f"acker:{{{topology}}}:config".encode()


def history(topology: str, step: int) -> bytes:
    """Stream: readings of a topology's counters, one every `step` seconds (record_history.lua)."""
    return f"acker:{{{topology}}}:history:{step}".encode()


def turn(topology: str) -> bytes:
    """String: the process that writes the next reading of a topology's counters. It has a time to live."""
    return f"acker:{{{topology}}}:turn".encode()


def idempotency_key(topology: str, name: str) -> bytes:
    """Hash: the call of an idempotency key (idempotency_keys.py). It has a time to live."""
    return f"acker:{{{topology}}}:idempotency_key:{name}".encode()


def streams(topology: str) -> bytes:
    """Set: the names of a topology's streams."""
    return f"acker:{{{topology}}}:streams".encode()


def removals(topology: str) -> bytes:
    """String: the removals of the topology, and of its functions (lua/store/includes/removed.lua)."""
    return f"acker:{{{topology}}}:removals".encode()


def lines(topology: str) -> bytes:
    """Hash: the lines of a topology (declare_line.lua)."""
    return f"acker:{{{topology}}}:lines".encode()


def commits(topology: str, writer: str) -> bytes:
    """Hash: the last commits of a writer of streams (begin_commit.lua)."""
    return f"acker:{{{topology}}}:commits:{writer}".encode()


def reached(topology: str) -> bytes:
    """Hash: how far spouts have come in their sources (lua/streams/sources/note_reached.lua)."""
    return f"acker:{{{topology}}}:reached".encode()


def committing(topology: str) -> bytes:
    """Hash: running commits, and the last heartbeat of each (beat_commit.lua)."""
    return f"acker:{{{topology}}}:committing".encode()


def notes(topology: str, query: str, run: str, batch: int) -> bytes:
    """Set: the ranges of streams that a batch reads, in a run of its query."""
    return f"acker:{{{topology}}}:notes:{query}:{run}:{batch}".encode()


def tracked(topology: str, query: str, run: str, batch: int) -> bytes:
    """Hash: the rows that the tasks of a batch of a query made roots of, by task."""
    return f"acker:{{{topology}}}:tracked:{query}:{run}:{batch}".encode()


def tracking_queries(topology: str, source: str) -> bytes:
    """Hash: the queries that track the rows of one call of `track` (acker/spark/queries/conflicts.py)."""
    return f"acker:{{{topology}}}:tracking_queries:{source}".encode()


def suspect(topology: str, name: str) -> bytes:
    """String: records of a running or lost task, or the record that ends a process."""
    return f"acker:{{{topology}}}:suspect:{name}".encode()


def verdict(topology: str, query: str, run: str) -> bytes:
    """String: the verdict on the plan of a query's run (acker/spark/queries/plan_check.py)."""
    return f"acker:{{{topology}}}:verdict:{query}:{run}".encode()


def effects(topology: str, staged_id: str) -> bytes:
    """String: digests of effects, staged for a commit."""
    return f"acker:{{{topology}}}:effects:{staged_id}".encode()


def external(topology: str, kind: str, name: str) -> bytes:
    """String `receipts`: received rows of a commit. Hashes `sent`, `txn`: a writer's segments, and writes."""
    return f"acker:{{{topology}}}:{kind}:{name}".encode()


def health(topology: str) -> bytes:
    """Hash: thresholds of a topology, and begins of troubles (acker/inspect/topology/health.py)."""
    return f"acker:{{{topology}}}:health".encode()


def activity(topology: str, kind: str = "activity") -> bytes:
    """Stream: the latest writes of people and programs. `chart_marks`: marks that these have pushed out."""
    return f"acker:{{{topology}}}:{kind}".encode()


def steps(topology: str, kind: str = "steps") -> bytes:
    """Hash: steps, and their last signs of life (step_registry.py). `held`: held tuples (note_held.lua)."""
    return f"acker:{{{topology}}}:{kind}".encode()


def step_numbers(topology: str) -> bytes:
    """Hash: name of a step -> the number by which marks name it (number_step.lua)."""
    return f"acker:{{{topology}}}:step_numbers".encode()


class Stream:
    """The keys of one stream of a topology: all in one slot, without any shard's keys."""

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
        """Stream: the latest dropped segments (drop_segments.lua)."""

    def payload(self, segment_id: str) -> bytes:
        """String: the rows of a segment. It has a time to live until the segment is published."""
        return self._prefix + b"payload:" + segment_id.encode()

    def unacked(self, segment_id: str) -> bytes:
        """Hash: the subscriptions of a segment, and the state of each (note_segments.lua)."""
        return self._prefix + b"unacked:" + segment_id.encode()

    @property
    def gathering(self) -> bytes:
        """Sorted set: "<group>:<task>" of a gathering stream's segments, by first arrival (ms)."""
        return self._prefix + b"gathering"

    @property
    def removals(self) -> bytes:
        """String: number of removals of the stream, or of a subscription of it. It has a time to live."""
        return self._prefix + b"removals"

    @property
    def gone(self) -> bytes:
        """Sorted set: released groups of a gathering stream, by their times (ms; release_bundle.lua)."""
        return self._prefix + b"gone"

    def gathered(self, group: str, task: int) -> bytes:
        """Stream: waiting segments of a gathering stream, of one group and task."""
        return self._prefix + b"gathered:%s:%d" % (group.encode(), task)

    def progress(self, group: str) -> bytes:
        """Hash: the finished requests of a group in a section (note_arrivals.lua)."""
        return self._prefix + b"progress:" + group.encode()

    @property
    def volumes(self) -> bytes:
        """String: approximate counts of the rows of each key that were written lately (count_volumes.lua)."""
        return self._prefix + b"volumes"

    def workers(self, slot: int) -> bytes:
        """Hash: reader of a worker -> the end of its lease (lease.lua)."""
        return self._prefix + b"workers:%d" % slot

    def delivered(self, slot: int, reader: str) -> bytes:
        """Stream: the segments that a subscription gave a reader, numbered 1-0, 2-0 ..."""
        return self._prefix + b"delivered:%d:" % slot + reader.encode()

    def fences(self, slot: int, reader: str) -> bytes:
        """Hash: the commits with a reader's segments; a mark if some were given back (bind_reader.lua)."""
        return self._prefix + b"fences:%d:" % slot + reader.encode()

    def holder(self, slot: int, reader: str) -> bytes:
        """String: the batch that a reader's segments are read for (acker/streams/log/holders.py)."""
        return self._prefix + b"holder:%d:" % slot + reader.encode()

    def of_reader(self, slot: int, reader: str) -> list[bytes]:
        """All keys of one reader."""
        return [self.delivered(slot, reader), self.fences(slot, reader), self.holder(slot, reader)]

    def returned(self, slot: int) -> bytes:
        """Stream: segments of a subscription whose reader is gone, for any other reader."""
        return self._prefix + b"returned:%d" % slot

    def readers(self, slot: int) -> bytes:
        """Hash: a subscription's readers (claim_segments.lua)."""
        return self._prefix + b"readers:%d" % slot

    def heartbeats(self, slot: int) -> bytes:
        """Hash: reader -> the last heartbeat of its query (ms; acker/streams/downtime.py)."""
        return self._prefix + b"heartbeats:%d" % slot

    def stale(self, segment_id: str, slot: int) -> bytes:
        """String: a mark that a segment's stale rows were counted for a subscription (count_stale.lua)."""
        return self._prefix + b"stale:" + segment_id.encode() + b":%d" % slot

    def skipped(self, staged_id: str) -> bytes:
        """Hash: the rows that a batch reads and leaves out (acker/streams/staging/skipped.py)."""
        return self._prefix + b"skipped:" + staged_id.encode()

    def marker(self, segment_id: str) -> bytes:
        """String: a mark that a segment without a commit was published (publish_once.lua)."""
        return self._prefix + b"published:" + segment_id.encode()

    def announced(self, token: str) -> bytes:
        """String: the slots that an external segment was announced for (announce.lua)."""
        return self._prefix + b"sent:" + bytes.fromhex(token)


class Spout:
    """The keys of a spout's kept rows and dead letters: all in one slot, without any shard's keys."""

    COUNTS = ("pending", "acked", "replayed", "dead")
    """Fields of `counts` with numbers of rows."""
    CLAIMED = "claimed"
    """Field of `counts`: a process takes the outcomes, so no other process settles them."""

    __slots__ = ("_prefix", "counts", "dead", "highest", "kept", "letters", "paused")

    def __init__(self, topology: str, spout: str) -> None:
        self._prefix = prefix = f"acker:{{{topology}@{spout}}}:".encode()
        self.kept = prefix + b"kept"
        """Hash: the roots whose rows are kept."""
        self.counts = prefix + b"counts"
        """Hash: counts of pending and of settled rows, by status."""
        self.highest = prefix + b"highest"
        """Hash: partition of the source -> the offset after its highest row."""
        self.dead = prefix + b"dead"
        """Stream: the facts of each dead letter (acker/streams/sources/dead_letter_store.py)."""
        self.letters = prefix + b"letters"
        """Hash: number of a dead letter -> record of its roots, and its row."""
        self.paused = prefix + b"paused"
        """String: the record of its pause (lua/inspect/pause_kept.lua)."""

    @property
    def slabs(self) -> bytes:
        """Hash: slab -> its rows."""
        return self._prefix + b"slabs"

    @property
    def members(self) -> bytes:
        """Hash: place of a member -> its process (lua/ledger/outcomes/claim_member.lua)."""
        return self._prefix + b"members"

    @property
    def removals(self) -> bytes:
        """String: how often it was removed lately. It has a time to live."""
        return self._prefix + b"removals"

    @property
    def server(self) -> bytes:
        """Hash: its server, and since when (lua/inspect/note_server.lua). It has a time to live."""
        return self._prefix + b"server"

    @property
    def times(self) -> bytes:
        """Sorted set: roots by the time when they were kept or last checked."""
        return self._prefix + b"times"

    def rows(self, roots_id: str, kind: str = "rows") -> bytes:
        """String: the rows of roots. It has a time to live until they are kept; "staged_rows" have one."""
        return self._prefix + f"{kind}:{roots_id}".encode()

    def declared(self) -> list[bytes]:
        """The keys that every script on kept rows declares first (kept.lua)."""
        masks, left = self._prefix + b"masks", self._prefix + b"left"
        return [self.kept, self.slabs, masks, left, self.counts, self.times]


FUNCTIONS = b"acker:functions"
"""Hash: the functions of all topologies (acker/drpc/registry.py)."""


def around_shard(topology: str, shards: int) -> tuple[bytes, bytes]:
    """The parts of a shard's keys before and behind its number, in the hash tag (claim_and_read.lua)."""
    return f"acker:{{{topology}:".encode(), f"/{shards}}}:".encode()


class Shard:
    """The keys of one shard of a topology (shard.lua lists their contents). Each has the number of shards.

    So a process that knows an older topology of that name, with another number, finds no shard of this one.
    """

    __slots__ = (
        "_fixed", "_prefix", "counters", "early", "latency", "message_ids", "number", "of_steps", "ones",
        "slabs",
    )  # fmt: skip

    def __init__(self, topology: str, number: int, shards: int) -> None:
        self.number = number
        self._prefix = prefix = (b"%d" % number).join(around_shard(topology, shards))
        self.slabs, self.message_ids, self.ones = prefix + b"slabs", prefix + b"message_ids", prefix + b"ones"
        self.counters, self.latency, self.early = prefix + b"counters", prefix + b"latency", prefix + b"early"
        self._fixed = [
            self.clock, self.slabs, self.message_ids, prefix + b"failures", prefix + b"confirmed",
            self.counters, self.latency, prefix + b"writers", prefix + b"writers_before", prefix + b"scratch",
            *self.buckets(),
            prefix + b"operand", self.recent, self.ones, prefix + b"finished", self.early, self.removed,
        ]  # fmt: skip
        self.of_steps = [self.step_counts, *(self.marks(rotation) for rotation in range(4))]
        """The keys with acks of steps: `step_counts`, and the four hashes of marks."""

    @property
    def clock(self) -> bytes:
        """Hash: the number of rotations, and their times."""
        return self._prefix + b"clock"

    @property
    def recent(self) -> bytes:
        """Stream: the latest failed or expired trees (recent.lua)."""
        return self._prefix + b"recent"

    @property
    def removed(self) -> bytes:
        """String: a mark of a topology that was removed lately (shard.lua). It has a time to live."""
        return self._prefix + b"removed"

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
        """Hash: counts of each step in this shard, by its number (marks.lua)."""
        return self._prefix + b"step_counts"

    def marks(self, rotation: int) -> bytes:
        """Hash: step and slab -> the last ack since a rotation."""
        return self._prefix + b"marks:%d" % (rotation % 4)

    @property
    def traces(self) -> bytes:
        """Stream: the latest traces of this shard (note_trace.lua)."""
        return self._prefix + b"traces"

    def trace(self, anchor: int) -> bytes:
        """Hash: the events of a traced tree. It has a time to live."""
        return self._prefix + b"trace:%d" % anchor

    def vector(self, slab: bytes) -> bytes:
        """String: the ack vector of a slab."""
        return self._prefix + b"ack:" + slab

    def vectors(self, slabs: Sequence[bytes]) -> list[bytes]:
        """The ack vectors of slabs."""
        return [*map((self._prefix + b"ack:").__add__, slabs)]

    def staged(self, staged_id: str, slot: int) -> bytes:
        """Hash: a segment's XOR vectors for this shard and a subscription (stage.lua)."""
        return self._prefix + b"staged:" + staged_id.encode() + b":%d" % slot

    @property
    def early_rows(self) -> bytes:
        """Hash: bytes of bits and fails of rows that came before their segments (external.lua)."""
        return self._prefix + b"early_rows"

    def applied(self, commit: str) -> bytes:
        """Hash: the progress of a commit in this shard: its emits and fails (applied.lua)."""
        return self._prefix + b"applied:" + commit.encode()

    def failing(self, staged_id: str) -> bytes:
        """Hash: trees that a commit fails in this shard, and causes (acker/streams/staging/staging.py)."""
        return self._prefix + b"failing:" + staged_id.encode()

    def effects(self, horizon: int, generation: int, partition: int | str) -> bytes:
        """Set: digests of effects (acker/streams/staging/effects.py). String `count`: the number of all."""
        return self._prefix + b"once:%d:%d:" % (horizon, generation) + str(partition).encode()

    def latest_effects(self, horizon: int, writer: str) -> bytes:
        """Hash: the digests that the last commit of a writer has recorded, and the commit's number."""
        return self._prefix + b"latest_once:%d:" % horizon + writer.encode()

    def outcomes(self, spout: str) -> bytes:
        """Stream: the unconfirmed outcomes of a spout."""
        return self._prefix + b"outcomes:" + spout.encode()

    def declared(self, spouts: Iterable[str]) -> list[bytes]:
        """The keys that every operation declares first, in their order."""
        return [*self._fixed, *(self.outcomes(spout) for spout in spouts)]
