"""A call of very many rows keeps no small ones waiting, where a step of the function says so."""

from typing import Any

import pyarrow as pa
import pytest

from acker.collectors.topology import Topology
from acker.drpc import LinearDRPC, Out
from acker.drpc.calling.client import Client
from acker.store import keys
from acker.store.operation import command
from acker.streams.log import fairness
from acker.workers.worker import Worker
from tests.helpers.builders.counting import Count

BIG, SMALL, SMALL_ONES = 20_000, 5, 50
N = {"of": pa.int64()}


@pytest.mark.parametrize("column", ["_acker", "of", ""])
def test_small_calls_do_not_wait_for_a_large_one_that_came_first(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    monkeypatch.setattr(fairness, "LIGHT", 1_024)
    monkeypatch.setattr(fairness, "SEGMENT_ROWS", 1_024)
    seen: list[int] = []

    def fan(row: dict[str, Any], out: Out) -> None:
        for _ in range(row["args"]):
            out.emit({"of": row["args"]})

    def work(row: dict[str, Any], out: Out) -> None:
        seen.append(row["of"])
        out.emit(row)

    function = (
        LinearDRPC("f")
        .step("fan", fan, columns=N, fair_by="_acker" if column else "")
        .step("work", work, columns=N, fair_by=column)
        .gather("count", Count, fair_by="_acker" if column else "")
    )
    with Topology(valkey_url, "t", ackers=2) as topology:
        line = function.register(topology)
        fanning, working, counting = [
            Worker(line.ledger, one.step, most_rows=2_000) for one in line.workers()
        ]
        for one in (fanning, working, counting):
            one.work()
        client = Client(topology.ledger, "f")
        for number in (BIG, *[SMALL] * SMALL_ONES):
            client.begin(number).begun.result()
            while fanning.work():
                pass
        while working.work():
            pass
        assert sorted(seen) == [SMALL] * SMALL * SMALL_ONES + [BIG] * BIG
        last = len(seen) - seen[::-1].index(SMALL)
        assert (seen[:last].count(BIG) < BIG / 2) == bool(column)
        asked = [
            command("HEXISTS", keys.Stream("t", f"f.{step}").subscriptions, "fair")
            for step in ("fan", "work", "count")
        ]
        assert topology.ledger.store.send(asked) == [int(bool(column))] * 3
        with function.work(topology):
            assert client.execute(3) == 3
