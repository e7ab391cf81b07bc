"""Values that are longer than the server takes (`proto-max-bulk-len`) are told from an outage, at once."""

import asyncio
import pickle
import time
from typing import Any

import pyarrow as pa
import pytest
import redis

from acker.errors import ValidationError, ValueTooLong
from acker.ledger.client import Ledger, open_ledger
from acker.store.async_client import AsyncStore
from acker.store.client import Store
from acker.store.operation import command
from acker.streams import StreamReader
from acker.streams.commits.contents import Commit
from acker.streams.log import schemas
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.staging import staging
from acker.streams.staging.staging import Staging
from tests.helpers.builders.streaming import commit, consume, counters, emit, rows, take
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.servers import KINDS

MIB = 1 << 20


@pytest.fixture(params=[*KINDS, "secretive"])
def strict(request: pytest.FixtureRequest, new_server: NewServer) -> str:
    """The URL of a server that takes 1 MiB in a value; one of them does not tell."""
    server = new_server(kind="valkey" if request.param == "secretive" else request.param, append_only=False)
    with redis.Redis.from_url(server.url) as client:
        client.config_set("proto-max-bulk-len", MIB)
        if request.param != "secretive":
            return str(server.url)
        client.execute_command("ACL", "SETUSER", "quiet", "on", ">x", "~*", "+@all", "-config", "-acl")
    return str(server.url.replace("redis://", "redis://quiet:x@"))


def test_a_long_value_is_an_error_that_names_size_and_limit(strict: str) -> None:
    store, began = Store(strict, timeout=120.0), time.monotonic()
    limit = 0 if "quiet" in strict else MIB
    for size in (MIB + 1, 40 * MIB):
        long = command("SET", b"k", bytes(size))
        with pytest.raises(ValueTooLong) as raised:
            store.send([command("GET", b"k"), long, command("GET", b"k")])
        assert (raised.value.size, raised.value.limit) == (size, limit)
        assert f"{size:,} bytes" in str(raised.value)
        assert "proto-max-bulk-len" in str(raised.value)
        assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)

        async def send(long: Any = long) -> None:
            async with AsyncStore(strict, timeout=120.0) as own:
                await own.send([long])

        with pytest.raises(ValueTooLong):
            asyncio.run(send())
    assert time.monotonic() - began < 100, "no call waited until its time was over"
    assert store.send([command("SET", b"k", bytes(MIB)), command("STRLEN", b"k")])[1] == MIB


def test_the_limit_can_be_set_where_the_server_does_not_tell(strict: str) -> None:
    store = Store(f"{strict}?max_value_bytes=2000000")
    with pytest.raises(ValueTooLong) as raised:
        store.send([command("SET", b"k", bytes(2_000_001))])
    assert (raised.value.size, raised.value.limit) == (2_000_001, 2_000_000)
    with pytest.raises(ValidationError, match="max_value_bytes"):
        Store(f"{strict}?max_value_bytes=1000")


def test_rows_go_into_as_many_segments_as_the_store_takes_and_a_long_row_fails_alone(strict: str) -> None:
    ledger = open_ledger(Store(strict), "t", ackers=2)
    anchors = emit(ledger, 9)
    sizes = [300_000] * 8 + [2 * MIB]
    table = pa.table({"word": [bytes([n]) * size for n, size in enumerate(sizes)], "_acker": anchors})
    ledger.run(schemas.record(ledger.core, "words", table.schema))
    how = Staging("words", step="split", batch=7, compression="none")
    staged = ledger.run(staging.stage(ledger.core, how, table.to_batches()))
    assert sum(one.rows for one in staged.segments) == 8
    assert 2 < len(staged.segments) <= 5
    commit(ledger, 0, Commit((staged,), (take(ledger, "lines"),)))
    assert sorted(len(row["word"]) for row in rows(ledger, "words")) == sizes[:8]  # type: ignore[arg-type]
    consume(ledger, "words")
    assert (counters(ledger)["acked"], counters(ledger)["failed"]) == (8, 1)
    [reason] = _reasons(ledger)
    assert reason.startswith("ValueTooLong: a value has 2,097,")
    assert ("more than the 1,048,576 bytes that" in reason) == ("quiet" not in strict)


def _reasons(ledger: Ledger) -> list[str]:
    from acker.inspect.trees import failures

    return [one.cause.reason for one in ledger.run(failures.page(ledger.core)).trees]


def test_a_spout_keeps_rows_in_as_many_pieces_as_the_store_takes(strict: str) -> None:
    ledger = open_ledger(Store(strict), "t", ackers=2)
    spout = StreamSpout(ledger, SpoutOptions("s", "lines", "id", attempts=2), compression="none")
    made = spout.write(pa.table({"id": list(range(8)), "word": [bytes([n]) * 300_000 for n in range(8)]}))
    assert len(made) > 2
    assert len(list(StreamReader(ledger, "lines").rows())) == 8
    consume(ledger, "lines")
    assert counters(ledger)["acked"] == 8
    with pytest.raises(ValueTooLong):
        spout.write(pa.table({"id": [9], "word": [bytes(2 * MIB)]}))
    assert counters(ledger)["tracked"] == 8


def test_many_long_reasons_are_staged_in_pieces_that_every_store_takes(strict: str) -> None:
    ledger = open_ledger(Store(strict), "t", ackers=1)
    anchors = emit(ledger, 3_000)
    reasons = [f"{n:>1000}" for n in range(3_000)]
    staged_ids = ledger.run(staging.stage_failures(ledger.core, 60, anchors, reasons))
    assert 1 < len(staged_ids) < 40
    commit(ledger, 0, Commit((staging.Staged("", (), tuple(staged_ids)),), (take(ledger, "lines"),)))
    assert counters(ledger)["failed"] == 3_000


def test_no_server_is_asked_for_its_limit_for_many_short_values(url: str, raw: "redis.Redis") -> None:
    """A connection's first request brings all scripts: a user need not have the right to ask."""
    short = [command("DEL", bytes(MIB // 8)) for _ in range(20)]
    raw.config_resetstat()
    Store(url).send(short)

    async def send() -> None:
        async with AsyncStore(url) as own:
            await own.send(short)

    asyncio.run(send())
    assert "cmdstat_config|get" not in raw.info("commandstats")
