"""A spout of Kafka and two steps, each a process: killed at any of their calls, they lose nothing."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from acker import Topology
from acker.embedded.processes import tied
from examples import kafka_steps
from examples.kafka_steps import Places
from tests.helpers.servers.kafka import Broker
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.slow

LINES = 60
LIVES = 4
"""Times that each process kills itself."""


@pytest.fixture
def places(real_broker: Broker, valkey_url: str, group: str, tmp_path: Path) -> Places:
    """The store, the broker and the table of a run, with topics of its own."""
    found = Places(valkey_url, real_broker.servers, tmp_path / "words.db", f"{group}-")
    for name in (kafka_steps.LINES, kafka_steps.SENTENCES, kafka_steps.WORDS):
        real_broker.create(f"{group}-{name}", 2)
    return found


@pytest.mark.timeout(180)
def test_no_line_is_lost_or_expires_wherever_producers_and_consumers_are_killed(places: Places) -> None:
    chance = random.Random(1)
    lives = dict.fromkeys(kafka_steps.ROLES, 0)
    running: dict[str, subprocess.Popen[bytes]] = {}

    def start(role: str) -> None:
        kill_at = chance.randrange(1, 150) if lives[role] < LIVES else 0
        own = [role, places.url, places.servers, str(places.table), places.prefix, str(kill_at)]
        running[role] = subprocess.Popen(
            tied([sys.executable, "-m", "tests.helpers.faults.kafka_step", *own])
        )

    with Topology(places.url, kafka_steps.NAME, message_timeout=120.0) as topology:
        kafka_steps.declare(topology)
        kafka_steps.produce(places, LINES)
        for role in kafka_steps.ROLES:
            start(role)

        def done() -> bool:
            for role, child in running.items():
                if child.poll() is not None:
                    assert child.returncode == -signal.SIGKILL, f"{role} has ended with {child.returncode}"
                    lives[role] += 1
                    start(role)
            return kafka_steps.committed(places) == LINES

        try:
            wait_until(done, timeout=150, interval=0.1)
        finally:
            for child in running.values():
                child.kill()
                child.wait()
    assert min(lives.values()) > 0, "each was killed"
    assert kafka_steps.check(places, LINES) == []


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_example_checks_itself(places: Places) -> None:
    command = [sys.executable, "-m", "examples.kafka_steps", "--check", "--crash", "--lines", "200"]
    own = ["--url", places.url, "--servers", places.servers, "--prefix", places.prefix]
    ended = subprocess.run([*command, *own], check=False, capture_output=True, text=True, timeout=170)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "checked: nothing is wrong" in ended.stdout
