"""A server and its replica, and the Sentinels that watch them, on loopback."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import redis

from acker.embedded import EmbeddedServer
from acker.embedded.processes import tied
from acker.embedded.server import HOST, free_port
from tests.helpers.servers.servers import wait_until

SERVICE = "orders"


class Sentinels:
    """Three Sentinels, and the two servers of the service `orders`; the first of `servers` begins as master.

    options: more settings of the servers; sentinel_options: more of the Sentinels. tls: all speak TLS to each
    other, on `tls-port`s; the options say with which files.
    """

    def __init__(
        self,
        directory: Path,
        *,
        binary: Path,
        options: Mapping[str, str] | None = None,
        sentinel_options: Mapping[str, str] | None = None,
        tls: bool = False,
    ) -> None:
        self.directory = directory
        self.ports = [free_port() for _ in range(3)]
        self._plain = [free_port() for _ in range(3)] if tls else self.ports
        self._binary = binary
        self._tls = tls
        self._sentinel_options = dict(sentinel_options or {})
        self._processes: list[subprocess.Popen[bytes]] = []
        self.servers = [
            EmbeddedServer(
                directory / f"server-{number}",
                binary=binary,
                append_only=False,
                options={
                    "repl-diskless-sync-delay": "0",
                    **({"tls-port": str(free_port()), "tls-replication": "yes"} if tls else {}),
                    **(options or {}),
                },
            )
            for number in range(2)
        ]

    @property
    def hosts(self) -> str:
        """The Sentinels, as a URL names them."""
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    @property
    def url(self) -> str:
        """The URL of the service."""
        return f"redis+sentinel://{self.hosts}/{SERVICE}"

    def port(self, number: int) -> int:
        """The port of a server that clients and Sentinels use."""
        server = self.servers[number]
        return int(server.options["tls-port"]) if self._tls else server.port

    def start(self) -> Self:
        """Starts all, and waits until every Sentinel knows the others and the replica."""
        for server in self.servers:
            server.start()
        self.call(1, "REPLICAOF", HOST, self.port(0))
        for number in range(3):
            self._start_sentinel(number)
        wait_until(lambda: self.call(1, "ROLE")[3] == b"connected", timeout=60)
        wait_until(lambda: all(self._ready(number) for number in range(3)), timeout=60)
        return self

    def _start_sentinel(self, number: int) -> None:
        own, plain = self.ports[number], self._plain[number]
        mine = [f"port {plain}", *([f"tls-port {own}", "tls-replication yes"] if self._tls else [])]
        lines = [
            f"bind {HOST}",
            *mine,
            f"dir {self.directory}",
            *(f"{name} {value}" for name, value in self._sentinel_options.items()),
            f"sentinel monitor {SERVICE} {HOST} {self.port(0)} 2",
            f"sentinel down-after-milliseconds {SERVICE} 1000",
            f"sentinel failover-timeout {SERVICE} 5000",
        ]
        # A Sentinel writes to its configuration file, so each has one of its own.
        file = self.directory / f"sentinel-{number}.conf"
        file.write_text("\n".join([*lines, ""]))
        with (self.directory / f"sentinel-{number}.log").open("wb") as log:
            command = tied([str(self._binary), str(file), "--sentinel"])
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))

    def _sentinel(self, number: int) -> "redis.Redis":
        password = self._sentinel_options.get("requirepass")
        return redis.Redis(HOST, self._plain[number], password=password, socket_timeout=60)

    def mislead(self, number: int) -> None:
        """Has a Sentinel name a server where there is none, as one does that hears nothing of the others."""
        with self._sentinel(number) as client:
            client.sentinel_remove(SERVICE)
            client.sentinel_monitor(SERVICE, HOST, free_port(), 2)

    def be_patient(self) -> None:
        """From now on a server that is slow is not taken for dead, not for a minute."""
        for number in range(3):
            with self._sentinel(number) as client:
                client.sentinel_set(SERVICE, "down-after-milliseconds", 60_000)

    def _ready(self, number: int) -> bool:
        """True if a Sentinel knows the two others and the replica."""
        try:
            with self._sentinel(number) as client:
                facts: Any = client.info("sentinel")["master0"]
        except (redis.RedisError, KeyError):
            return False
        return bool(facts["sentinels"] == 3 and facts["slaves"] == 1 and facts["status"] == "ok")

    def call(self, number: int, *words: Any) -> Any:
        """The answer of a server."""
        with redis.Redis(HOST, self.servers[number].port, socket_timeout=60) as client:
            return client.execute_command(*words)

    def close(self) -> None:
        """Ends all of them."""
        for process in self._processes:
            process.kill()
            process.wait()
        for server in self.servers:
            server.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()  # or their processes fall into another test
            raise

    def __exit__(self, *_: object) -> None:
        self.close()
