"""The users of deploy/acker.acl for steps over external streams: a step that only receives, or only sends."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import redis

from acker import MissingRights, Topology, Tuple
from acker.errors import StoreError
from acker.store import function_keys
from acker.streams import StreamReader, StreamWriter
from tests.helpers.builders.external import source
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.rights import Rights, users


@pytest.fixture
def rights(new_server: NewServer, kind: str, tmp_path: Path) -> Iterator[Rights]:
    with users(new_server, kind, tmp_path) as rights:
        yield rights


@pytest.fixture
def opened(rights: Rights) -> Iterator[Callable[[str], Topology]]:
    """Opens the topology as a role; a spout has made it."""
    topologies = [Topology(rights.url("spout"), "t", ackers=2, linger=None)]

    def open_as(role: str) -> Topology:
        topologies.append(Topology(rights.url(role), "t", linger=None))
        return topologies[-1]

    yield open_as
    for topology in topologies:
        topology.close()


def everything(rights: Rights) -> dict[bytes, bytes]:
    """All keys and values but the time at which a stream was named last, which may be named again."""
    names = {*rights.operator.scan_iter()} - {function_keys.named("t")}
    return {key: rights.operator.dump(key) for key in names}


@pytest.mark.cluster
def test_a_step_that_only_receives_can_do_its_work(rights: Rights, opened: Callable[[str], Topology]) -> None:
    spout, step = opened("spout"), opened("receiver")
    items = step.incoming("items", subscription="count")
    early = source(spout, 300, rows=1)
    rows = items.extract_many(early)
    items.fail(rows[:260], "more than a call takes")
    items.ack(rows[260:])
    step.flush()
    spout.flush()
    later = source(spout, 50, rows=10)
    spout.flush()
    for part in (later[:-1], later):
        items.ack(items.extract_many(part))
        step.flush()
    assert {one: spout.counters()[one] for one in ("acked", "failed")} == {"acked": 90, "failed": 260}
    opened("receiver").incoming("items", subscription="count").extract_many([*early, *later])
    assert rights.denied() == []


@pytest.mark.cluster
def test_a_step_that_only_sends_can_do_its_work(rights: Rights, opened: Callable[[str], Topology]) -> None:
    spout, step, last = opened("spout"), opened("sender"), opened("receiver")
    words = last.incoming("words", subscription="count")
    tuples = [Tuple.parse(str(spout.spout("s").emit(f"m{number}")[0])) for number in range(20)]
    spout.flush()
    out = step.outgoing("words", segment_rows=3)
    headers = [out.inject({}, one) for one in tuples for _ in range(2)]
    out.delivered("no broker", SimpleNamespace(headers=lambda: headers[0]))
    out.withdraw(headers[3])
    words.ack(words.extract_many(headers[6:12]))  # two segments, which are full as soon as they are emitted
    last.flush()
    step.flush()
    out.delivered("no broker", SimpleNamespace(headers=lambda: headers[-1]))
    step.flush()
    words.ack(words.extract_many([*headers[1:3], *headers[4:6], *headers[12:-1]]))
    last.flush()
    assert {one: spout.counters()[one] for one in ("acked", "failed")} == {"acked": 18, "failed": 2}
    assert rights.denied() == []


def test_a_step_that_only_receives_sends_nothing(rights: Rights, opened: Callable[[str], Topology]) -> None:
    spout, step = opened("spout"), opened("receiver")
    items = step.incoming("items", subscription="count")
    headers = source(spout, 2)
    spout.flush()
    [row, other] = items.extract_many(headers)
    step.outgoing("words").stamp(row)
    items.ack([row, other])
    before = everything(rights)
    with pytest.raises(MissingRights, match=r"'acker-receiver' has no permission .* which 'announce' needs"):
        step.flush()
    assert everything(rights) == before
    refused(rights, opened, "receiver")


def test_a_step_that_only_sends_receives_nothing(rights: Rights, opened: Callable[[str], Topology]) -> None:
    spout, step, last = opened("spout"), opened("sender"), opened("receiver")
    last.incoming("items", subscription="count")
    headers = source(spout, 2)
    spout.flush()
    items = step.incoming("items", subscription="count")
    items.ack(items.extract_many(headers))
    before = everything(rights)
    with pytest.raises(MissingRights, match=r"'acker-sender' has no permission"):
        step.flush()
    assert everything(rights) == before
    assert spout.counters()["acked"] == 0
    refused(rights, opened, "sender")


def refused(rights: Rights, opened: Callable[[str], Topology], role: str) -> None:
    """Checks that a role can do nothing that is no step's work, and changes nothing by the attempt."""
    StreamWriter(opened("executor").ledger, "managed").write(pa.table({"n": [1]}))
    topology = opened(role)
    before = everything(rights)
    attempts: list[Callable[[], Any]] = [
        lambda: Topology(rights.url(role), "new", ackers=1),
        lambda: topology.ledger.register_spout("another"),
        lambda: StreamWriter(topology.ledger, "managed").write(pa.table({"n": [2]})),
        lambda: list(StreamReader(topology.ledger, "managed").tables()),
        lambda: rights(role, "HSET", "acker:{t}:config", "ackers", "1"),
        lambda: rights(role, "UNLINK", "acker:topologies"),
        lambda: rights(role, "HGETALL", "acker:{t@s}:kept"),
        lambda: rights(role, "GET", "acker:{t/managed}:payload:1"),
        lambda: rights(role, "XADD", "acker:{t/items}:drops", "*", "a", "b"),
    ]
    for number, attempt in enumerate(attempts):
        with pytest.raises((StoreError, redis.exceptions.NoPermissionError), match=r"(?i)permission"):
            attempt()
        assert everything(rights) == before, number
