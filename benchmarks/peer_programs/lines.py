"""A line of acker: a request for each parent, a row for each child, and a step that has seen all of them.

See benchmarks/lines.py. The first step makes the children, the second works on each, and the third, which
gathers, learns that a parent is complete.
"""

import multiprocessing
import sys
import threading
import time
from typing import Any

import pyarrow as pa

from acker import Topology
from acker.ledger.client import Ledger
from acker.lines import Gather, Line, Out, Request
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from benchmarks.peer_programs.marks import Marks

TIMEOUT = 3600.0


def line_of(ledger: Ledger, children: int, marks: Marks) -> Line:
    """The line, with its steps."""
    line = Line(ledger, "parents", [Gather("done")])

    @line.step("fan", reads="parents")
    def fan(_: dict[str, Any], out: Out) -> None:
        for number in range(children):
            out.emit("children", {"number": number})

    @line.step("child", reads="children")
    def child(row: dict[str, Any], out: Out) -> None:
        marks.child()
        out.emit("done", row)

    @line.gather("parent", reads="done")
    class Parent:
        def __init__(self, _: Request) -> None:
            self.left = children

        def execute(self, _: dict[str, Any]) -> None:
            self.left -= 1

        def finished(self, _: Out) -> None:
            if self.left:
                raise RuntimeError(f"a parent is complete without {self.left} of its children")
            marks.parents()

    return line


def work(url: str, directory: str, children: int) -> None:
    """A worker process."""
    topology = Topology(url, "bench", message_timeout=TIMEOUT)
    with topology, line_of(topology.ledger, children, Marks(directory)).work():
        threading.Event().wait()


def main() -> None:
    """Runs what the command line asks for."""
    action, url, directory, parents, children, workers = sys.argv[1:7]
    if action == "enqueue":
        with Topology(url, "bench", message_timeout=TIMEOUT) as topology:
            line = line_of(topology.ledger, int(children), Marks(directory))
            for worker in line.workers():
                worker.work()  # makes its subscription, and finds nothing
            start = time.perf_counter()
            names = pa.array([str(number) for number in range(int(parents))])
            how = SpoutOptions("requests", "parents", "parent", line=line.name)
            StreamSpout(topology.ledger, how).write(pa.table({"parent": names}))
            print(time.perf_counter() - start)
        return
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=work, args=(url, directory, int(children))) for _ in range(int(workers))
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
