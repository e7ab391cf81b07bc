"""Effects that a step has had: what keeps the effect of a row to one over replays of its tree.

An effect is named by a digest: 16 bytes of the step's name and the row's key. Digests of a commit are staged
by its tasks and recorded by the commit, so that a batch sees what earlier batches have recorded, and never
itself, however often it is run.

They are kept in sets, three generations of half a horizon each: one is remembered for 1.0 to 1.5 horizons.
(The time buckets of Storm's RotatingMap; here a generation goes by its own time to live.)
"""

from collections.abc import Collection, Iterable, Sequence

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

In a struct, of a row that it only marked: null within where the digest is recorded."""
DIGEST_BYTES = 16
PARTITIONS = 256
"""Sets that a generation of a shard is divided into: none takes long to be freed."""
_GENERATIONS = 3
_CALL_DIGESTS = 1_000
_ATTEMPTS = 5


def split(
    batches: Sequence[pa.RecordBatch], failed: str
) -> tuple[list[pa.RecordBatch], list[bytes], list[bytes]]:
    """Batches without the column of digests; digests of rows that did not fail, and of rows that did."""
    rest, kept, released = [], list[bytes](), list[bytes]()
    for batch in batches:
        digests = batch.column(EFFECT)
        if pa.types.is_struct(digests.type):  # of a row that is there in each attempt
            [digests] = digests.flatten()
        rest.append(batch.drop_columns([EFFECT]))
        if failed in batch.schema.names:
            bad = batch.column(failed).is_valid()
            released += digests.filter(bad).drop_null().to_pylist()
            digests = digests.filter(batch.column(failed).is_null())
        kept += digests.drop_null().to_pylist()
    return rest, kept, released


def stage(core: Core, ttl: int, digests: Sequence[bytes]) -> Operation[str]:
    """Stages digests for a commit; returns the token."""
    token = segments.new_token()
    yield [command("SET", keys.effects(core.config.name, token), b"".join(digests), "EX", ttl, "NX")]
    return token


def staged(core: Core, token: str) -> Operation[list[bytes]]:
    """The digests that were staged under a token; none where they were recorded and dropped."""
    [packed] = yield [command("GET", keys.effects(core.config.name, token))]
    return parse(packed)


def parse(packed: bytes | None) -> list[bytes]:
    """The digests of what was staged."""
    packed = packed or b""
    return [packed[at : at + DIGEST_BYTES] for at in range(0, len(packed), DIGEST_BYTES)]


def known(core: Core, horizon: int, digests: Sequence[bytes]) -> Operation[tuple[set[bytes], int]]:
    """Which of the digests are recorded under a horizon (ms), and about how many the fullest shard holds."""
    shards = _shards(core)
    counts = yield [
        command("GET", shard.effect_count(horizon, generation))
        for shard in shards
        for generation in range(_GENERATIONS)
    ]
    counted = [int(count or 0) for count in counts]
    found: set[bytes] = set()
    questions: list[tuple[Request, list[bytes]]] = []
    for shard, partition, members in _places(core, digests):
        for generation in range(_GENERATIONS):
            if counted[shard.number * _GENERATIONS + generation]:
                key = shard.effects(horizon, generation, partition)
                questions.append((command("SMISMEMBER", key, *members), members))
    replies = yield [request for request, _ in questions]
    for (_, members), reply in zip(questions, replies, strict=True):
        found.update(member for member, is_there in zip(members, reply, strict=True) if is_there)
    return found, max(sum(counted[at : at + _GENERATIONS]) for at in range(0, len(counted), _GENERATIONS))


def record(core: Core, horizon: int, token: str, released: Collection[bytes] = ()) -> Operation[None]:
    """Records what was staged under a token for a horizon (ms), but for digests that were `released`.

    What was recorded and dropped meanwhile is not recorded again: a call is for the generation of a moment
    before the digests were read, and refused when that is over. The same again changes nothing.
    """
    for _ in range(_ATTEMPTS):
        times = yield asking_times(core)
        had = yield from staged(core, token)
        replies = yield recording(core, horizon, set(had).difference(released), times)
        if not any(int(reply) < 0 for reply in replies):
            return
    raise StoreError(f"a generation of effects ended {_ATTEMPTS} times before a call came")


def asking_times(core: Core) -> list[Request]:
    """Requests for the time of each shard, as `recording` takes it."""
    return [Request(shard.clock, ["TIME"]) for shard in _shards(core)]


def recording(core: Core, horizon: int, digests: Iterable[bytes], times: Sequence[Reply]) -> list[Request]:
    """Requests that record digests; answered -1 where their generation is over by then."""
    generations = {
        shard.number: milliseconds(time) // (horizon // 2)
        for shard, time in zip(_shards(core), times, strict=True)
    }
    return [_recording(horizon, generations[place[0].number], *place) for place in _places(core, digests)]


def _recording(
    horizon: int, generation: int, shard: keys.Shard, partition: int, digests: list[bytes]
) -> Request:
    count = shard.effect_count(horizon, generation % _GENERATIONS)
    own = shard.effects(horizon, generation % _GENERATIONS, partition)
    return scripts.record_effects(count, own, horizon // 2, generation, digests)


def _shards(core: Core) -> list[keys.Shard]:
    return core.shards or [keys.Shard(core.config.name, 0, 0)]


def _places(core: Core, digests: Iterable[bytes]) -> Iterable[tuple[keys.Shard, int, list[bytes]]]:
    """Shard, partition, and the digests that belong there, in parts that one call may name."""
    shards = _shards(core)
    grouped: dict[tuple[int, int], list[bytes]] = {}
    for digest in dict.fromkeys(digests):
        place = int.from_bytes(digest[:4], "big") % len(shards), digest[4] % PARTITIONS
        grouped.setdefault(place, []).append(digest)
    for (shard, partition), members in grouped.items():
        for at in range(0, len(members), _CALL_DIGESTS):
            yield shards[shard], partition, members[at : at + _CALL_DIGESTS]
