"""Traffic of a spout and a bolt: most trees are acked, some fail, some are never heard of again."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from acker import Topology

REASONS = ("no such word", "bad encoding: expected UTF-8", "<img src=x onerror=alert(1)> is no word")
_BEAT = 0.1


def emit(topology: Topology, count: int, dice: random.Random, number: int) -> None:
    """One beat of it: `count` trees, whose outcomes so far are confirmed."""
    spout, bolt = topology.spout("sentences"), topology.bolt("split")
    for index in range(count):
        [line] = spout.emit(message_id=f"poem.txt:{number + index}")
        words = [bolt.emit([line])[0] for _ in range(3)]
        bolt.ack(line)
        fate = dice.random()
        if fate < 0.02:
            bolt.fail(words[0], dice.choice(REASONS))
        elif fate < 0.97:
            for word in words:
                bolt.ack(word)
    topology.flush()
    for outcome in spout.outcomes(timeout=0):
        spout.confirm(outcome)


@contextmanager
def flowing(topology: Topology, a_beat: int = 10) -> Iterator[None]:
    """Lets it flow in a thread, some trees each tenth of a second."""
    stop = threading.Event()
    dice = random.Random(7)

    def run() -> None:
        number = 0
        while not stop.wait(_BEAT):
            count = max(1, round(a_beat * dice.uniform(0.5, 1.5)))
            emit(topology, count, dice, number)
            number += count

    thread = threading.Thread(target=run, name="traffic", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)
