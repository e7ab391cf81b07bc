"""Late copies of calls: a lost reply has a client send again, and a network may deliver such a copy later."""

import contextlib
from collections.abc import Iterator, Sequence

import pytest

from acker.store.client import Store
from acker.store.operation import Reply, Request
from tests.helpers.faults.simulator import scripts_of


class Copies:
    """All calls that were sent while they were recorded, for one store."""

    def __init__(self) -> None:
        self.sent: list[tuple[Store, Request]] = []

    def come(self, *names: str) -> list[Reply]:
        """Sends the calls of scripts of these names again, in their order; returns the replies."""
        chosen = [(store, one) for store, one in self.sent if set(names) & set(scripts_of([one]))]
        assert {name for _, one in chosen for name in scripts_of([one])} >= set(names)
        return [reply for store, one in chosen for reply in store.send([one])]


@contextlib.contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch, commands: bool = False) -> Iterator[Copies]:
    """Records the calls of a block; `commands`: plain commands, too."""
    send, copies = Store.send, Copies()

    def recording(store: Store, requests: Sequence[Request]) -> list[Reply]:
        copies.sent += [(store, one) for one in requests if commands or one.script is not None]
        return send(store, requests)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "send", recording)
        yield copies
