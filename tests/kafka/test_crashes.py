"""Crashes: the process of the spout is killed at any of its calls, again and again."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from acker import Topology
from tests.helpers.builders.kafka_spouts import letters_of
from tests.helpers.servers.kafka import Broker

pytestmark = pytest.mark.slow

RECORDS = 24
BAD = (5, 6, 17)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_no_record_is_lost_wherever_the_spout_is_killed(
    real_broker: Broker, topology: Topology, group: str, tmp_path: Path, seed: int
) -> None:
    topic, log, chance = real_broker.topic(), tmp_path / "log", random.Random(seed)
    log.touch()
    values = [b"bad %d" % n if n in BAD else b"%d" % n for n in range(RECORDS)]
    real_broker.produce(topic, values)
    worked, buried = set[str](), set[int]()
    command = [sys.executable, "-m", "tests.helpers.faults.kafka_worker"]
    url = topology.ledger.store.url
    for life in range(60):
        kill_at = chance.randrange(2, 40) if life < 6 else 0
        ended = subprocess.run(
            [*command, url, real_broker.servers, topic, group, str(log), str(RECORDS), str(kill_at)],
            check=False,
            capture_output=True,
            timeout=60,
        )
        assert ended.returncode in (0, -signal.SIGKILL), ended.stderr.decode()
        worked = set(log.read_text().split())
        buried = {int(str(letter.row["offset"])) for letter in letters_of(topology)}
        for offset in range(real_broker.committed(group, topic)):
            assert offset in buried or values[offset].decode() in worked, f"{offset} is committed"
        if ended.returncode == 0:
            break
    assert worked == {value.decode() for n, value in enumerate(values) if n not in BAD}
    assert buried == set(BAD)
    assert real_broker.committed(group, topic) == RECORDS
