"""The servers that benchmarks run on, and what these say of themselves."""

import csv
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from acker.embedded import EmbeddedServer, embedded_binary


def binaries() -> list[Path]:
    """The embedded Valkey, and the redis-server on PATH if there is one."""
    found = shutil.which("redis-server")
    return [embedded_binary(), *([Path(found)] if found else [])]


@contextmanager
def serving(binary: Path | None = None) -> Iterator[str]:
    """The URL of a server of our own without append-only file; the embedded one unless another is named."""
    with EmbeddedServer(append_only=False, binary=binary, start_timeout=60.0) as server:
        yield server.url


def client(url: str) -> Any:
    """A plain client."""
    return redis.Redis.from_url(url)


def version(url: str) -> str:
    """The server's name and version."""
    with client(url) as raw:
        facts = raw.info("server")
    name = facts.get("server_name", "redis").capitalize()
    return f"{name} {facts.get('valkey_version') or facts['redis_version']}"


def cpu_seconds(url: str) -> float:
    """Processor seconds that the server's main thread, which does all the work, has taken so far."""
    with client(url) as raw:
        facts = raw.info("cpu")
    return float(facts["used_cpu_user_main_thread"]) + float(facts["used_cpu_sys_main_thread"])


def memory(url: str) -> int:
    """Bytes that the server's data take, without the buffers of clients, which come and go.

    What it frees behind the scenes is waited for, up to ten seconds.
    """
    with client(url) as raw:
        deadline = time.monotonic() + 10.0
        while (facts := raw.info("memory"))["lazyfree_pending_objects"] and time.monotonic() < deadline:
            time.sleep(0.01)
    return int(facts["used_memory"]) - int(facts["mem_clients_normal"])


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds by the clock, and processor seconds of the servers' main threads."""

    seconds: float
    cpu: float

    def __add__(self, other: "Took") -> "Took":
        return Took(self.seconds + other.seconds, self.cpu + other.cpu)


def redis_benchmark(url: str, commands: int, *words: str) -> Took:
    """The time of redis-benchmark for a command, 64 to a pipeline, on 50 connections."""
    tool = shutil.which("redis-benchmark") or shutil.which("valkey-benchmark")
    if tool is None:
        raise SystemExit("redis-benchmark is not on PATH (Debian: redis-tools)")
    host, port = url.removeprefix("redis://").split("/")[0].split(":")
    command = [tool, "-h", host, "-p", port, "-P", "64", "-n", str(commands), "--csv", *words]
    before = cpu_seconds(url)
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rate = float(list(csv.reader(out.splitlines()))[-1][1])
    return Took(commands / rate, cpu_seconds(url) - before)
