"""The world of external streams in step with its model: both must agree after each request."""

import types
from collections.abc import Container, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha1
from typing import Any, ClassVar

import pytest

from acker.collectors.external import exchange, opening, receiving
from acker.ledger.client import open_ledger
from acker.store.client import Store
from acker.store.operation import Reply, Request
from acker.store.scripts import Script
from acker.streams.log import subscriptions
from acker.streams.staging.external import declaring
from tests.helpers.faults.simulator import Send
from tests.helpers.models.external.shadow import Shadow
from tests.helpers.worlds.external import ExternalWorld

BEGIN, STEP = 1_800_000_000, 1800
"""The store's clock at first, in Unix seconds, and the seconds of an event of time."""

_loaded = set[tuple[str, bytes]]()


@cache
def clocked(script: Script, seconds: int) -> Script:
    """A script whose clock stands at a time."""
    instant = f"({{'{seconds}', '0'}})"
    text = script.text.replace("redis.call('TIME')", instant).replace("call('TIME')", instant)
    return replace(script, text=text, sha=sha1(text.encode(), usedforsecurity=False).hexdigest().encode())


class ShadowedWorld(ExternalWorld):
    """See the module. The clock stands still, but for `half_hour`; `empty` empties the store."""

    events: ClassVar = ("look", "tick", "half_hour", "empty")

    def __init__(self, url: str, cluster: bool = False, seed: int = 0) -> None:
        super().__init__(url, cluster, seed)
        self.now, self._quiet, self._patch = BEGIN, False, pytest.MonkeyPatch()
        self.shadow = Shadow(self.raw, self.ledger, tuple(self.streams), BEGIN)
        clock = types.SimpleNamespace(monotonic=lambda: float(self.now))
        for module in (exchange, opening, receiving):
            self._patch.setattr(module, "time", clock)

    def exchange(self, requests: Sequence[Request], send: Send) -> list[Reply]:
        """Sends requests one by one, and compares the store with the model after each."""
        replies: list[Reply] = []
        for request in requests:
            if request.script is not None:
                request = replace(request, script=self._loaded(clocked(request.script, self.now)))
            [reply] = send([request])
            if request.script is None and request.args[0] == "TIME":
                reply = [b"%d" % self.now, b"0"]
            if not self._quiet and self.shadow.take(request, reply):
                self.shadow.compare()
            replies.append(reply)
        return replies

    def _loaded(self, script: Script) -> Script:
        """A script that the server has: acker itself loads its scripts as they are."""
        if (self.url, script.sha) not in _loaded:
            _loaded.add((self.url, script.sha))
            self.raw.script_load(script.text)
        return script

    def close(self) -> None:
        """Lets the clock go on."""
        super().close()
        self._patch.undo()

    def snapshot(self) -> Any:
        """The model, beside a moment of the store."""
        return self.shadow.snapshot()

    def restore(self, snapshot: Any, tags: Container[bytes] | None) -> None:
        """Sets the model back, as the store was."""
        self.shadow.restore(snapshot, tags)
        self.shadow.compare()

    def tick(self) -> None:
        """A ticker's round, as a whole."""
        self._quiet = True
        super().tick()
        self._quiet = False
        self.shadow.tick()
        self.shadow.compare()

    def half_hour(self) -> None:
        """The clock goes on: keys whose time is over are gone."""
        self.simulator.losses += 1  # rows that come too late are untracked, and flushes refused
        raw: Any = self.raw
        for key in raw.scan_iter(count=1000):
            left = raw.pttl(key)
            if 0 < left <= STEP * 1000:
                raw.delete(key)
            elif left > 0:
                raw.pexpire(key, left - STEP * 1000)
        self.now += STEP
        self.shadow.move(STEP)

    def empty(self) -> None:
        """The store is emptied; its topology and its subscriptions are made anew."""
        self.simulator.losses += 1
        self.raw.flushall()
        self.ledger = open_ledger(Store(self.url), "t", **self.settings)
        for stream, name in (("items", "count"), ("words", "sink")):
            self.ledger.run(declaring.declare(self.ledger.core, stream))
            self.ledger.run(subscriptions.subscribe(self.ledger.core, stream, name, "external"))
        self.shadow.ledger = self.ledger
        self.shadow.clear()
