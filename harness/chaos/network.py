"""A network between the processes and a server, which delays, cuts, and delivers twice (helpers/proxy.py)."""

import contextlib
import random
import socket
import threading
import time

from harness.chaos.plan import CLIENT_TIMEOUT
from tests.helpers.faults.proxy import Proxy

LONGEST = 8 << 20
"""Bytes of a request that are gathered at most; what is longer is passed on and not looked at."""
HELD = 500
_DELIVER = 5.0


def commands(data: bytes) -> tuple[list[bytes], bytes]:
    """The whole commands at the start of what a client sent, and the rest. ValueError for anything else."""
    found, at = [], 0
    while at < len(data):
        end = _command_end(data, at)
        if end is None:
            break
        found.append(data[at:end])
        at = end
    return found, data[at:]


def _command_end(data: bytes, at: int) -> int | None:
    """The end of the command that begins at a place; None if it has not come yet."""
    count, at = _number(data, at, b"*")
    for _ in range(count):
        if at < 0:
            return None
        length, at = _number(data, at, b"$")
        at = -1 if at < 0 or at + length + 2 > len(data) else at + length + 2
    return at if at >= 0 else None


def _number(data: bytes, at: int, mark: bytes) -> tuple[int, int]:
    """A number behind a mark, and the place after its line; (0, -1) where the line has no end yet."""
    if at >= len(data):
        return 0, -1
    if data[at : at + 1] != mark:
        raise ValueError(f"expected {mark!r} at {at}, got {data[at : at + 10]!r}")
    end = data.find(b"\r\n", at)
    return (int(data[at + 1 : end]), end + 2) if end >= 0 else (0, -1)


class Copies:
    """Keeps copies of the script calls that pass, to be delivered again: later, and in another order."""

    def __init__(self) -> None:
        self.held: list[bytes] = []
        self._partial: dict[socket.socket, bytes] = {}
        self._lock = threading.Lock()

    def __call__(self, connection: socket.socket, data: bytes) -> None:
        """For `Proxy.passed`."""
        with self._lock:
            before = self._partial.pop(connection, b"")
            try:
                whole, rest = commands(before + data)
            except ValueError:
                return  # it began in the middle of a request
            if rest and len(rest) <= LONGEST:
                self._partial[connection] = rest
            calls = [one for one in whole if one[:40].upper().find(b"EVALSHA") >= 0]
            self.held += calls[: HELD - len(self.held)]

    def deliver(self, port: int, chance: random.Random) -> int:
        """Sends them to the server, each on a connection of its own, in any order; returns how many."""
        with self._lock:
            held, self.held = self.held, []
        chance.shuffle(held)
        deadline, delivered = time.monotonic() + _DELIVER, 0
        for call in held:
            if time.monotonic() > deadline:
                break
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0) as late:
                late.settimeout(1.0)
                late.sendall(call)
                delivered += bool(late.recv(1 << 16))
        return delivered


class Slow:
    """Delays each request, by another time each: requests of several connections overtake each other."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.delayed = 0

    def __call__(self, connection: socket.socket, data: bytes) -> None:
        """For `Proxy.passed`."""
        self.delayed += 1
        time.sleep(self._chance.uniform(0.0, 0.4 * CLIENT_TIMEOUT))


class Network:
    """Two ways to the server: of the source, and of the Spark applications."""

    def __init__(self, url: str) -> None:
        self.proxies = [Proxy(url), Proxy(url)]

    @property
    def urls(self) -> tuple[str, str]:
        """The server as the source and as the applications see it."""
        return self.proxies[0].url, self.proxies[1].url

    def close(self) -> None:
        """Ends both."""
        for proxy in self.proxies:
            proxy.close()
