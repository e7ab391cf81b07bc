"""Servers whose clock can be set, while nobody else's changes (libfaketime)."""

import time
from pathlib import Path

import redis

from acker.embedded import EmbeddedServer, embedded_binary
from tests.helpers.servers.servers import wait_until


class NoLibrary(Exception):
    """There is nothing that shifts a process's clock."""


def library() -> Path:
    """The library that shifts a process's clock. Raises NoLibrary."""
    for found in Path("/usr/lib").glob("**/faketime/libfaketime.so.1"):
        return found
    raise NoLibrary("no libfaketime.so.1 (apt-get install libfaketime)")


class ShiftedClock:
    """A wall clock that can be set, for one server; its monotonic clock is right, as a machine's is.

    directory: of its own, made if need be. Debian's Redis does not start with the library: its allocator
    asks for the time.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._shift = directory / "shift"
        self.set(0.0)
        self.binary = directory / "server"
        """The program of the embedded server, with this clock."""
        settings = {
            "LD_PRELOAD": library(),
            "FAKETIME_TIMESTAMP_FILE": self._shift,
            "FAKETIME_NO_CACHE": 1,
            "FAKETIME_DONT_FAKE_MONOTONIC": 1,
        }
        words = " ".join(f"{name}='{value}'" for name, value in settings.items())
        self.binary.write_text(f"#!/bin/sh\n{words} exec '{embedded_binary()}' \"$@\"\n")
        self.binary.chmod(0o755)

    def set(self, seconds: float) -> None:
        """Sets the clock to be wrong by so much, ahead of the time or behind it; the server soon sees it."""
        new = self._shift.with_suffix(".new")
        new.write_text(f"{seconds:+.3f}")
        new.replace(self._shift)

    def step(self, server: EmbeddedServer, seconds: float) -> None:
        """Sets the clock, and waits until the server has seen it."""
        self.set(seconds)
        with redis.Redis.from_url(server.url) as client:
            wait_until(lambda: abs(client.time()[0] - time.time() - seconds) < 1.5)
