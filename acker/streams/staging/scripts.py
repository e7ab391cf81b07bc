"""The scripts of what is staged as functions (as in acker/streams/log/scripts.py)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from acker.ledger.calls.calls import Call
from acker.ledger.calls.marks import Mark
from acker.ledger.settings.config import TopologyConfig
from acker.store import scripts
from acker.store.keys import Shard
from acker.store.operation import Request, Word, script


def stage(key: bytes, ttl: int, fields: Mapping[str, bytes | str]) -> Request:
    """Stages a hash, where there is none."""
    return script("stage", [key], [ttl, *chain.from_iterable(fields.items())])


@dataclass(frozen=True, slots=True)
class StagedChunk:
    """A chunk of staged vectors: its hash, its number there, its slabs of many, and those of one.

    left: slabs, and which of their trees are not acked (acker/streams/staging/skipped.py); None: all are.
    """

    staged: bytes
    number: int
    slabs: Sequence[bytes]
    ones: Sequence[bytes]
    left: Mapping[bytes, bytes] | None = None


def apply_staged(
    config: TopologyConfig,
    shard: Shard,
    chunks: Sequence[StagedChunk],
    *,
    to: str,
    made: bytes | None = None,
    needed: str = "",
    by: Mark | None = None,
) -> Call:
    """Brings chunks to a state. made, needed: of a commit that needs something made. by: who acks."""
    own = [*([] if made is None else [made]), *([] if by is None else shard.of_steps())]
    args: list[Word] = [to, config.waiting_bytes, needed, b"" if by is None else by.packed()]
    for one in chunks:
        own += [one.staged, *shard.vectors(one.slabs)]
        each = [one.left.get(slab, b"") for slab in (*one.slabs, *one.ones)] if one.left else ()
        packed = b"".join(len(part).to_bytes(2, "little") + part for part in each) if any(each) else b""
        args += [one.number, len(one.slabs), len(one.ones), packed, *one.ones]
    return Call(shard.number, scripts.get("apply_staged"), own, args, waits=True)


def stage_rows(key: bytes, ttl: int, rows: bytes) -> Request:
    """Stages the rows of a segment, or of roots, where there are none."""
    return script("stage_rows", [key], [ttl, rows])


def hold_staged(staged: Sequence[bytes], ttl: int) -> Request:
    """Gives what is staged for a commit another time to live."""
    return script("hold_staged", staged, [ttl])


def check_staged(staged: Sequence[bytes]) -> Request:
    """Tells whether vectors of a shard are still staged."""
    return script("check_staged", staged, [])


def note_made(config: TopologyConfig, made: bytes, what: str, ttl: int) -> Request:
    """Notes in a shard that a commit has made something elsewhere."""
    return script("note_made", [made], [what, ttl], config.wait)


def record_effects(
    count: bytes, effects: bytes, period: int, generation: int, digests: Sequence[bytes]
) -> Request:
    """Records effects in a generation of so many ms. count, effects: keys of that."""
    return script("record_effects", [count, effects], [period, generation, *digests])


def give_results(staged: bytes, results: Sequence[bytes], ttl: int, anchors: Sequence[str]) -> Request:
    """Has staged results take effect, by anchor."""
    return script("give_results", [staged, *results], [ttl, *anchors])
