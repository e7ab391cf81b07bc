"""What the driver's listener of queries does where the store is away."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from acker.ledger.client import open_ledger
from acker.spark.queries import query_listener
from acker.store.client import Store
from tests.helpers.servers.new_server import NewServer


def test_the_end_of_a_query_does_not_wait_for_a_store_that_is_away(
    new_server: NewServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's listeners would wait with it, one query after the other, and `SparkSession.stop` for them."""
    monkeypatch.setattr(query_listener, "_PATIENCE", 0.5)
    server = new_server()
    ledger = open_ledger(Store(server.url, timeout=300.0), "t")
    listener = query_listener._Listener(None)  # type: ignore[arg-type]
    execution = SimpleNamespace(resolvedCheckpointRoot=lambda: "/checkpoint")
    listener._started["run"] = execution, [], [ledger]
    named: Any = lambda name: lambda: SimpleNamespace(toString=lambda: name)  # noqa: E731
    server.stop()
    ending = threading.Thread(
        target=listener.onQueryTerminated, args=[SimpleNamespace(id=named("query"), runId=named("run"))]
    )
    ending.start()
    ending.join(60.0)
    assert not ending.is_alive()
    assert not listener._started
