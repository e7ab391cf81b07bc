"""Redis Clusters of real servers on loopback."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.retry import Retry

from acker.embedded import EmbeddedServer
from acker.embedded.server import HOST, free_port
from acker.errors import StoreUnavailable

SLOTS = 16384

Node = tuple[str, int]


class Cluster:
    """A cluster of `masters` masters with one replica each, or none.

    patient: no replica takes over by itself, however slow the machine is; without, one does two seconds after
    its master fell silent. own_ports: options that are a port of each server's own. `servers` are the first
    masters, then their replicas in the same order.
    """

    def __init__(
        self,
        directory: Path,
        *,
        binary: Path,
        masters: int = 3,
        replicas: bool = True,
        patient: bool = False,
        options: Mapping[str, str] | None = None,
        own_ports: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.masters = masters
        self._binary = binary
        self._options = {
            "cluster-enabled": "yes",
            "cluster-node-timeout": "60000" if patient else "2000",
            "cluster-replica-no-failover": "yes" if patient else "no",
            # A replica that was cut off for long is better than none.
            "cluster-replica-validity-factor": "0",
            "repl-diskless-sync-delay": "0",
            **(options or {}),
        }
        # The bus listens ten thousand ports higher by default, where ports are given to clients.
        self._own_ports = ("cluster-port", *own_ports)
        self._wanted = masters * (2 if replicas else 1)
        self.servers: list[EmbeddedServer] = []

    @property
    def url(self) -> str:
        """The cluster's URL, which names all its servers."""
        return "redis+cluster://" + ",".join(f"{HOST}:{server.port}" for server in self.servers)

    def start(self) -> Self:
        """Starts it, and waits until all of it agrees and replicates."""
        for number in range(self._wanted):
            self.servers.append(self._start_one(number))
        names = [self.name(number) for number in range(self._wanted)]
        bounds = [SLOTS * number // self.masters for number in range(self.masters + 1)]
        for number in range(self._wanted):
            # An epoch of their own each, or they have to settle on one first.
            self.call(number, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for number in range(self.masters):
            self.call(number, "CLUSTER", "ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1)
        first = self.servers[0]
        for number in range(1, self._wanted):
            self.call(number, "CLUSTER", "MEET", HOST, first.port, first.options["cluster-port"])
        self._wait(lambda number: self._fact(number, "cluster_known_nodes") == str(self._wanted))
        for number in range(self.masters, self._wanted):
            self.call(number, "CLUSTER", "REPLICATE", names[number - self.masters])
        self.wait()
        return self

    def _start_one(self, number: int) -> EmbeddedServer:
        directory = self.directory / f"node-{number}"
        for attempt in range(5):
            options = self._options | {name: str(free_port()) for name in self._own_ports}
            try:
                return EmbeddedServer(
                    directory / str(attempt),
                    binary=self._binary,
                    append_only=False,
                    options=options,
                    start_timeout=60.0,
                ).start()
            except StoreUnavailable:
                if attempt == 4:
                    raise
        raise AssertionError

    def call(self, number: int, *words: Any) -> Any:
        """The answer of a server to a command that is for itself alone."""
        with self.client(number) as client:
            return client.execute_command(*words)

    def client(self, number: int) -> "redis.Redis":
        """A client of one server, which follows no redirection."""
        return redis.Redis(HOST, self.servers[number].port, socket_timeout=60, retry=Retry(NoBackoff(), 0))

    def _fact(self, number: int, name: str) -> str:
        lines = self.call(number, "CLUSTER", "INFO").decode().split()
        return str(dict(line.split(":", 1) for line in lines).get(name))

    def wait(self) -> None:
        """Waits until every running server has all slots served, and each replica its master's data."""

        def ready(number: int) -> bool:
            if self._fact(number, "cluster_state") != "ok":
                return False
            role = self.call(number, "ROLE")
            if role[0] == b"slave":
                return bool(role[3] == b"connected")
            return len(role[2]) >= (self._wanted // self.masters - 1)

        self._wait(ready)

    def _wait(self, ready: Any) -> None:
        deadline = time.monotonic() + 90
        for number, server in enumerate(self.servers):
            while server.running and not ready(number):
                assert time.monotonic() < deadline, f"the cluster is not ready: server {number}"
                time.sleep(0.05)

    def name(self, number: int) -> bytes:
        """The name of a server in the cluster."""
        return bytes(self.call(number, "CLUSTER", "MYID"))

    def begin_move(self, slot: int, source: int, target: int) -> None:
        """Begins to move a slot: from now on calls for it may be redirected."""
        self.call(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", self.name(source))
        self.call(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", self.name(target))

    def move_keys(self, slot: int, source: int, target: int, count: int) -> int:
        """Moves up to `count` keys of a slot; returns how many."""
        keys = self.call(source, "CLUSTER", "GETKEYSINSLOT", slot, count)
        if keys:
            port = self.servers[target].port
            self.call(source, "MIGRATE", HOST, port, "", 0, 30_000, "KEYS", *keys)
        return len(keys)

    def end_move(self, slot: int, source: int, target: int) -> None:
        """Moves what is left of a slot, and gives it to its new owner."""
        while self.move_keys(slot, source, target, 10):
            pass
        name = self.name(target)
        for number in (target, *(number for number in range(self.masters) if number != target)):
            self.call(number, "CLUSTER", "SETSLOT", slot, "NODE", name)

    def migrate(self, slots: Sequence[int], source: int, target: int) -> None:
        """Has a server move slots by itself, all in one step (Valkey 9), and waits until everyone knows."""
        ranges = [bound for slot in slots for bound in (slot, slot)]
        name, deadline = self.name(target), time.monotonic() + 90
        states, before = dict[bytes, bytes](), dict[bytes, bytes]()
        while b"success" not in states.values():
            assert time.monotonic() < deadline, f"the slots have not moved: {states}"
            if all(state in (b"failed", b"cancelled") for state in states.values()):
                before = self._exports(source)
                self.call(source, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", *ranges, "NODE", name)
            states = {job: state for job, state in self._exports(source).items() if job not in before}
            time.sleep(0.05)
        self._wait(lambda number: {self._owner(number, slot) for slot in slots} == {target})

    def _exports(self, number: int) -> dict[bytes, bytes]:
        """The migrations of slots from a server -> their states."""
        jobs = self.call(number, "CLUSTER", "GETSLOTMIGRATIONS")
        return {job[b"name"]: job[b"state"] for job in jobs if job[b"operation"] == b"EXPORT"}

    def _owner(self, number: int, slot: int) -> int | None:
        """The number of the server that has a slot, by what another says; None where that knows of none."""
        for first, last, master, *_ in self.call(number, "CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return [server.port for server in self.servers].index(master[1])
        return None

    def owner(self, key: bytes) -> int:
        """The number of the server that has a key, by its own word: others learn of a change later."""
        slot = key_slot(key)
        for number, server in enumerate(self.servers):
            if not server.running:
                continue
            with contextlib.suppress(redis.RedisError):
                if self._owner(number, slot) == number:
                    return number
        raise AssertionError(f"nobody has slot {slot}")

    def close(self) -> None:
        """Ends all of it."""
        for server in self.servers:
            server.kill()
            server.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()
