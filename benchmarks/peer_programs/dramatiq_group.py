# /// script
# requires-python = ">=3.11"
# dependencies = ["dramatiq[redis]==2.2.1"]
# ///
"""Dramatiq: a group for each parent, with the parent as its completion callback. See benchmarks/peers.py."""

import os
import sys
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import GroupCallbacks
from dramatiq.rate_limits.backends import RedisBackend

from benchmarks.peer_programs.marks import Marks

# The workers are processes of dramatiq's own command line, which import this module.
if __name__ == "__main__":
    os.environ["BENCH_URL"], os.environ["BENCH_DIRECTORY"] = sys.argv[2:4]
URL, DIRECTORY = os.environ["BENCH_URL"], os.environ["BENCH_DIRECTORY"]
broker = RedisBroker(url=URL)
broker.add_middleware(GroupCallbacks(RedisBackend(url=URL)))
dramatiq.set_broker(broker)
marks = Marks(DIRECTORY)


@dramatiq.actor  # type: ignore[untyped-decorator]
def child(parent: int, number: int) -> None:
    """Does nothing."""
    marks.child()


@dramatiq.actor  # type: ignore[untyped-decorator]
def parent(number: int) -> None:
    """All children are done."""
    marks.parents()


def enqueue(parents: int, children: int) -> None:
    """Sends all groups."""
    start = time.perf_counter()
    for number in range(parents):
        group = dramatiq.group(child.message(number, index) for index in range(children))
        group.add_completion_callback(parent.message(number))
        group.run()
    print(time.perf_counter() - start)


if __name__ == "__main__":
    action, _, _, parents, children, workers = sys.argv[1:7]
    if action == "enqueue":
        enqueue(int(parents), int(children))
    else:
        module = "benchmarks.peer_programs.dramatiq_group"
        arguments = ["-m", "dramatiq", module, "--processes", workers, "--threads", "8"]
        os.execv(sys.executable, [sys.executable, *arguments])
