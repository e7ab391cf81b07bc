"""Effects of a step: limit the effect of a row to one over replays of its tree.

An effect is named by a digest: 16 bytes of the step's name and the row's key. Tasks stage the digests of a
commit, and the commit records them. So a batch sees the records of earlier batches, and never its own,
however often it is run.

In a cluster, the node that has the record of a commit may lose it while shards have the commit's effects. The
batch runs again then, and must get the same rows. So a shard notes which digests the last commit of a writer
has recorded, and a batch whose commit is not stored does not see its own.

They are kept in sets, three generations of half a horizon each: a digest is remembered for 1.0 to 1.5
horizons. (The time buckets of Storm's RotatingMap; here a generation ends by its time to live.)

Terms: staged rows are stored, but nobody sees them before a commit.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import StoreError
from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, command
from acker.store.replies import milliseconds
from acker.streams.log import segments
from acker.streams.staging import scripts

EFFECT = "_acker_once"
"""Column: the digest of a row that `Collector.once` let through.

A row that is only marked has it in a struct, with null if the digest is recorded.
"""
DIGEST_BYTES = 16
PARTITIONS = 256
"""Sets of a shard's generation. They are small, so that freeing a set is quick."""
_GENERATIONS = 3
_CALL_DIGESTS = 1_000
_ATTEMPTS = 5

By: TypeAlias = tuple[str, int]
"""The writer and the number of a commit."""


def split(
    batches: Sequence[pa.RecordBatch], failed: str
) -> tuple[list[pa.RecordBatch], list[bytes], list[bytes]]:
    """Batches without the column of digests; digests of rows that did not fail, and of rows that did."""
    rest, kept, released = [], list[bytes](), list[bytes]()
    for batch in batches:
        digests = batch.column(EFFECT)
        if pa.types.is_struct(digests.type):  # of a row that each attempt has
            [digests] = digests.flatten()
        rest.append(batch.drop_columns([EFFECT]))
        if failed in batch.schema.names:
            bad = batch.column(failed).is_valid()
            released += digests.filter(bad).drop_null().to_pylist()
            digests = digests.filter(batch.column(failed).is_null())
        kept += digests.drop_null().to_pylist()
    return rest, kept, released


def stage(core: Core, ttl: int, digests: Sequence[bytes]) -> Operation[str]:
    """Stages digests for a commit; returns the id."""
    staged_id = segments.new_hex_id()
    yield [command("SET", keys.effects(core.config.name, staged_id), b"".join(digests), "EX", ttl, "NX")]
    return staged_id


def read(core: Core, staged_id: str) -> Operation[list[bytes]]:
    """The digests that were staged under an id; none after they were recorded and dropped."""
    [packed] = yield [command("GET", keys.effects(core.config.name, staged_id))]
    return parse(packed)


def parse(packed: bytes | None) -> list[bytes]:
    """The digests in a staged value."""
    packed = packed or b""
    return [packed[at : at + DIGEST_BYTES] for at in range(0, len(packed), DIGEST_BYTES)]


def find_recorded(
    core: Core, horizon: int, digests: Sequence[bytes], but: By | None = None
) -> Operation[tuple[set[bytes], int]]:
    """The digests that are recorded under a horizon (ms), and about how many the fullest shard holds.

    but: the commit of the batch that asks, if it is not stored: what it has recorded counts as new.
    """
    shards = _shards(core)
    counts = yield [
        command("GET", shard.effects(horizon, generation, "count"))
        for shard in shards
        for generation in range(_GENERATIONS)
    ]
    counted = [int(count or 0) for count in counts]
    recorded: set[bytes] = set()
    questions: list[tuple[Request, list[bytes]]] = []
    for shard, partition, members in _places(core, digests):
        for generation in range(_GENERATIONS):
            if counted[shard.number * _GENERATIONS + generation]:
                key = shard.effects(horizon, generation, partition)
                questions.append((command("SMISMEMBER", key, *members), members))
    replies = yield [request for request, _ in questions]
    for (_, members), reply in zip(questions, replies, strict=True):
        recorded.update(member for member, is_there in zip(members, reply, strict=True) if is_there)
    if but is not None and recorded:
        recorded -= yield from _recorded_by(core, horizon, recorded, *but)
    return recorded, max(sum(counted[at : at + _GENERATIONS]) for at in range(0, len(counted), _GENERATIONS))


def _recorded_by(
    core: Core, horizon: int, digests: Iterable[bytes], writer: str, number: int
) -> Operation[set[bytes]]:
    """The digests that a commit has recorded, if it is its writer's last one with effects."""
    places = list(_places(core, digests))
    replies = yield [
        command("HMGET", shard.latest_effects(horizon, writer), "number", *members)
        for shard, _, members in places
    ]
    recorded: set[bytes] = set()
    for (_, _, members), (of, *held) in zip(places, replies, strict=True):
        if of == b"%d" % number:
            recorded.update(member for member, one in zip(members, held, strict=True) if one is not None)
    return recorded


def record(
    core: Core, horizon: int, staged_id: str, by: By, released: Collection[bytes] = ()
) -> Operation[None]:
    """Records the digests of an id for a horizon (ms), except `released` ones. by: the commit.

    The same call again changes nothing.

    Digests that were recorded and dropped meanwhile are not recorded again: a call names the generation of a
    moment before the digests were read, and is refused when that is over.
    """
    for _ in range(_ATTEMPTS):
        times = yield asking_times(core)
        had = yield from read(core, staged_id)
        replies = yield requests(core, horizon, set(had).difference(released), times, by)
        if not any(int(reply) < 0 for reply in replies):
            return
    raise StoreError(f"a generation of effects ended {_ATTEMPTS} times before a call came")


def asking_times(core: Core) -> list[Request]:
    """Requests for the time of each shard, as `recording` takes it."""
    return [Request(shard.clock, ["TIME"]) for shard in _shards(core)]


def requests(
    core: Core, horizon: int, digests: Iterable[bytes], times: Sequence[Reply], by: By
) -> list[Request]:
    """Requests that record digests; the reply is -1 if their generation is over by then."""
    generations = {
        shard.number: milliseconds(time) // (horizon // 2)
        for shard, time in zip(_shards(core), times, strict=True)
    }
    return [_recording(horizon, generations[place[0].number], by, *place) for place in _places(core, digests)]


def _recording(
    horizon: int, generation: int, by: By, shard: keys.Shard, partition: int, digests: list[bytes]
) -> Request:
    (writer, number), turn = by, generation % _GENERATIONS
    return scripts.record_effects(
        shard.effects(horizon, turn, "count"),
        shard.effects(horizon, turn, partition),
        shard.latest_effects(horizon, writer),
        (horizon // 2, generation),
        number,
        digests,
    )


def _shards(core: Core) -> list[keys.Shard]:
    return core.shards or [keys.Shard(core.config.name, 0, 0)]


def _places(core: Core, digests: Iterable[bytes]) -> Iterable[tuple[keys.Shard, int, list[bytes]]]:
    """The shard and the partition of digests, in parts that fit into a call."""
    shards = _shards(core)
    grouped: dict[tuple[int, int], list[bytes]] = {}
    for digest in dict.fromkeys(digests):
        place = int.from_bytes(digest[:4], "big") % len(shards), digest[4] % PARTITIONS
        grouped.setdefault(place, []).append(digest)
    for (shard, partition), members in grouped.items():
        for at in range(0, len(members), _CALL_DIGESTS):
            yield shards[shard], partition, members[at : at + _CALL_DIGESTS]
