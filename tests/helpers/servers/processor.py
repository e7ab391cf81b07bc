"""The processor time that a server takes for requests, which others on the machine change little."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from acker.store.client import Store
from acker.store.operation import Reply, Request


def milliseconds(pid: int) -> float:
    """Processor time of a server's main thread since its start."""
    nanoseconds, *_ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
    return int(nanoseconds) / 1e6


def note_requests(monkeypatch: pytest.MonkeyPatch, pid: int) -> list[float]:
    """Has stores send requests one by one; the list gets the milliseconds that the server takes for each."""
    send, took = Store.send, list[float]()

    def send_each(store: Store, requests: Sequence[Request]) -> list[Reply]:
        replies = list[Reply]()
        for request in requests:
            before = milliseconds(pid)
            replies += send(store, [request])
            took.append(milliseconds(pid) - before)
        return replies

    monkeypatch.setattr(Store, "send", send_each)
    return took
