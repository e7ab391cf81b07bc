"""Something that happens just before a script goes to the store."""

import contextlib
import threading
from collections.abc import Callable, Sequence

import pytest

from acker.errors import AckerError
from acker.store.client import Store
from acker.store.operation import Reply, Request
from tests.helpers.faults.simulator import scripts_of


def before_script(
    monkeypatch: pytest.MonkeyPatch, name: str, instead: Callable[[], object], act: Callable[[], object]
) -> None:
    """Does something, and something else just before its first script of a name goes to the store."""
    send, left, own = Store.send, [instead], threading.get_ident()

    def stopped(store: Store, requests: Sequence[Request]) -> list[Reply]:
        if threading.get_ident() == own and name in scripts_of(requests):
            while left:
                left.pop()()
        return send(store, requests)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "send", stopped)
        with contextlib.suppress(AckerError):
            act()
    assert not left
