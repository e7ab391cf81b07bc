"""A Redis stream with a consumer group, as it comes or with a tree of acker for each parent.

See benchmarks/peers.py. `plain` only: a worker counts a parent down with HINCRBY, so that somebody knows
when it is complete. `acker`: the children carry their tuples, workers ack these, and a spout learns the
outcomes.
"""

import multiprocessing
import sys
import time
from collections.abc import Callable
from typing import Any

import redis

from acker import Topology
from acker.collectors.tuples import Tuple
from benchmarks.peer_programs.marks import Marks

STREAM, GROUP, LEFT = "children", "workers", "left"
BATCH = 1000
TIMEOUT = 3600.0
Entries = list[tuple[bytes, dict[bytes, bytes]]]


def enqueue_plain(raw: Any, parents: int, children: int) -> None:
    """Adds all children, and how many each parent waits for."""
    for first in range(0, parents, BATCH // children or 1):
        pipe = raw.pipeline(transaction=False)
        for parent in range(first, min(parents, first + (BATCH // children or 1))):
            pipe.hset(LEFT, parent, children)
            for number in range(children):
                pipe.xadd(STREAM, {"parent": parent, "number": number})
        pipe.execute()


def enqueue_acker(raw: Any, parents: int, children: int) -> None:
    """The same, with a tree for each parent and its tuples in the entries."""
    with topology_at(raw) as topology:
        spout = topology.spout("parents")
        for first in range(0, parents, BATCH // children or 1):
            pipe = raw.pipeline(transaction=False)
            for parent in range(first, min(parents, first + (BATCH // children or 1))):
                for number, one in enumerate(spout.emit(str(parent), targets=children)):
                    pipe.xadd(STREAM, {"parent": parent, "number": number, "tuple": str(one)})
            topology.flush()
            pipe.execute()


def topology_at(raw: Any) -> Topology:
    """The topology, opened on the server of a client."""
    place = raw.connection_pool.connection_kwargs
    return Topology(f"redis://{place['host']}:{place['port']}/0", "bench", message_timeout=TIMEOUT)


def consume(url: str, directory: str, name: str, handler: "Callable[[Any, Marks], Handler]") -> None:
    """A worker process: reads, works, acknowledges."""
    marks = Marks(directory)
    with redis.Redis.from_url(url) as raw:
        handle = handler(raw, marks)
        while True:
            found: Any = raw.xreadgroup(GROUP, name, {STREAM: ">"}, count=BATCH, block=1000)
            if found:
                marks.child()
                [(_, entries)] = found
                handle(entries)


Handler = Callable[[Entries], None]


def plain(raw: Any, marks: Marks) -> Handler:
    """Counts parents down."""

    def handle(entries: Entries) -> None:
        pipe = raw.pipeline(transaction=False)
        for _, fields in entries:
            pipe.hincrby(LEFT, fields[b"parent"], -1)
        pipe.xack(STREAM, GROUP, *(name for name, _ in entries))
        *left, _ = pipe.execute()
        complete = [fields[b"parent"] for (_, fields), count in zip(entries, left, strict=True) if not count]
        if complete:
            raw.hdel(LEFT, *complete)
            marks.parents(len(complete))

    return handle


def tracked(raw: Any, _: Marks) -> Handler:
    """Acks tuples."""
    topology = topology_at(raw)
    bolt = topology.bolt("child")

    def handle(entries: Entries) -> None:
        for _, fields in entries:
            bolt.ack(Tuple.parse(fields[b"tuple"].decode()))
        topology.flush()
        raw.xack(STREAM, GROUP, *(name for name, _ in entries))

    return handle


def outcomes(url: str, directory: str) -> None:
    """The spout, which learns what became of the parents."""
    marks = Marks(directory)
    with redis.Redis.from_url(url) as raw, topology_at(raw) as topology:
        spout = topology.spout("parents")
        while True:
            reported = list(spout.outcomes(timeout=1.0))
            for outcome in reported:
                spout.confirm(outcome)
            marks.parents(len(reported))


def main() -> None:
    """Runs what the command line asks for."""
    kind, action, url, directory, parents, children, workers = sys.argv[1:8]
    with redis.Redis.from_url(url) as raw:
        if action == "enqueue":
            raw.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
            start = time.perf_counter()
            (enqueue_plain if kind == "plain" else enqueue_acker)(raw, int(parents), int(children))
            print(time.perf_counter() - start)
            return
    context = multiprocessing.get_context("spawn")
    handler = plain if kind == "plain" else tracked
    processes = [
        context.Process(target=consume, args=(url, directory, f"worker-{number}", handler))
        for number in range(int(workers))
    ]
    if kind == "acker":
        processes.append(context.Process(target=outcomes, args=(url, directory)))
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
