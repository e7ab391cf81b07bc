"""Receipts: the rows of external streams that a batch has worked on, stored until its commit is done."""

import base64
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

import redis

from acker.errors import StoreError
from acker.ledger.calls.calls import Call
from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.records import Bounds, Codec, Count, HexId, Name, Record
from acker.streams.staging import scripts as staging_scripts
from acker.streams.staging.external import receiving, scripts, voiding
from acker.streams.staging.external.declaring import longest_ttl, stored_ttl
from acker.streams.staging.external.segments import WorkedBits
from acker.streams.staging.vectors import CommitProgress, VectorKey

_log = logging.getLogger(__name__)
Fail = tuple[Count, tuple[int, ...], Annotated[str, Bounds(0, 1 << 16)]]
"""A position, the trees of its row in the shard, and a cause."""
Fails: TypeAlias = Mapping[int, tuple[tuple[int, ...], bytes]]
"""Positions whose rows have failed: the trees of the row in the shard, and a cause."""


@dataclass(frozen=True, slots=True)
class Receipt(Record, label="received rows"):
    """The rows that a batch has worked on of an external stream, for a subscription.

    Attributes:
        stream, slot: The stream, and the subscription.
        epoch: The name of the stream's content.
        newest: The time at which the newest of their segments was begun, in Unix seconds.
        counted: Facts that the rows carried, counted by name.
        worked: Segment, shard, bitmap of positions (base64), fails.
    """

    stream: Name
    slot: Count
    epoch: str
    newest: Count
    counted: Mapping[str, int] = field(default_factory=dict)
    worked: tuple[tuple[HexId, Count, str, tuple[Fail, ...]], ...] = ()


_ALL: Codec[tuple[Receipt, ...]] = Codec(tuple[Receipt, ...], "received rows")


def packed(
    worked: Mapping[tuple[str, int], tuple[bytes, Fails]],
) -> tuple[tuple[str, int, str, tuple[Fail, ...]], ...]:
    """Rows by segment and shard, each a bitmap of positions and fails, as a receipt has them."""
    return tuple(
        (
            token,
            shard,
            base64.b64encode(positions).decode(),
            tuple((at, anchors, cause.decode()) for at, (anchors, cause) in sorted(fails.items())),
        )
        for (token, shard), (positions, fails) in sorted(worked.items())
    )


def stage(core: Core, staged_id: str, receipts: Sequence[Receipt], ttl: int) -> Request:
    """The request that stores receipts for a commit to come. It may be a part of the commit's chain."""
    key = keys.external(core.config.name, "receipts", staged_id)
    return staging_scripts.stage_rows(key, ttl, _ALL.dump(tuple(receipts)).encode())


def keys_of(core: Core, staged_ids: Sequence[str]) -> list[bytes]:
    """The keys of stored receipts."""
    return [keys.external(core.config.name, "receipts", one) for one in staged_ids]


def receive(
    core: Core, staged_ids: Sequence[str], progress: CommitProgress, emitted: Sequence[VectorKey]
) -> Operation[None]:
    """Says which rows were worked on, where the shards hold what the commit has emitted there.

    emitted: External segments that the commit has emitted: rows of them may have been worked on before.
    Raises StreamFull.
    """
    if not staged_ids and not emitted:
        return
    *stored, configured = yield [
        *(command("GET", key) for key in keys_of(core, staged_ids)),
        stored_ttl(core),
    ]
    ttl = longest_ttl(core, configured)
    receipts = [receipt for text in stored if text is not None for receipt in _ALL.load(text)]
    if any(text is None for text in stored):
        _log.error("%s: the store has lost what a commit has received: its rows expire", core.config.name)
    epochs = yield [
        command("HGET", keys.Stream(core.config.name, receipt.stream).subscriptions, "epoch")
        for receipt in receipts
    ]
    receipts = [
        receipt for receipt, epoch in zip(receipts, epochs, strict=True) if epoch == receipt.epoch.encode()
    ]
    looks = dict[VectorKey, str]()
    parts, lost = receiving.parts_of_rows(core, rows(receipts)), False
    left = [place for place in emitted if place not in receiving.bits_of(parts)]
    parts += receiving.looks_of(left)
    while parts:
        left = list[VectorKey]()
        calls = [receiving.call_of(core, part, progress, ttl) for part in parts]
        for part, reply in zip(parts, (yield from _ask(core, calls)), strict=True):
            letters = bytes(reply).partition(b" ")[0].decode()
            lost = lost or letters[:1] in ("l", "d")
            looks.update(zip(part.places(), letters, strict=True))
            left += [place for place, letter in zip(part.places(), letters, strict=True) if letter == "m"]
        parts = receiving.looks_of(left)
    if lost:
        _log.error(
            "%s: the store has lost work of a commit, or dropped what waited too long: inputs of the commit "
            "are not acked, and their trees expire", core.config.name,
        )  # fmt: skip
    yield from voiding.finish(core, looks)
    if not lost:
        yield [note(core, receipt, progress, ttl) for receipt in receipts]


def _ask(core: Core, calls: Sequence[Call]) -> Operation[list[bytes]]:
    try:
        return list((yield from core.ask(calls)))
    except (StoreError, redis.ResponseError) as error:
        if str(error).startswith("FULL"):
            raise receiving.full(core, str(error)) from None
        raise


def rows(receipts: Sequence[Receipt]) -> Iterator[tuple[str, int, int, WorkedBits]]:
    """The rows of receipts: segment, slot, shard and positions."""
    for receipt in receipts:
        for token, shard, positions, fails in receipt.worked:
            failed = {at: (anchors, cause.encode()) for at, anchors, cause in fails}
            yield token, receipt.slot, shard, WorkedBits(base64.b64decode(positions), failed)


def note(core: Core, receipt: Receipt, progress: CommitProgress, ttl: int) -> Request:
    """The request that notes how far the subscription of a receipt is."""
    counts = [(f"seen_{counter}", count) for counter, count in receipt.counted.items() if count]
    stream_keys = keys.Stream(core.config.name, receipt.stream)
    return scripts.note_received(
        core.config,
        stream_keys,
        f"{progress.commit}:{receipt.slot}",
        receipt.slot,
        receipt.newest,
        ttl,
        counts,
    )
