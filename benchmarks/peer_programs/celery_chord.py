# /// script
# requires-python = ">=3.11"
# dependencies = ["celery[redis]==5.7.0"]
# ///
"""Celery: a chord for each parent, the children its header, the parent its body. See benchmarks/peers.py."""

import sys
import time

from celery import Celery, chord

from benchmarks.peer_programs.marks import Marks

ACTION, URL, DIRECTORY, PARENTS, CHILDREN, WORKERS = sys.argv[1:7]
app = Celery("bench", broker=URL, backend=URL)
app.conf.update(
    worker_prefetch_multiplier=128,  # what its manual says for many short tasks
    result_chord_ordered=False,
    worker_hijack_root_logger=False,
    worker_cancel_long_running_tasks_on_connection_loss=True,
)
marks = Marks(DIRECTORY)


@app.task(name="child")  # type: ignore[untyped-decorator]
def child(parent: int, number: int) -> None:
    """Does nothing."""
    marks.child()


@app.task(name="parent", ignore_result=True)  # type: ignore[untyped-decorator]
def parent(results: list[None], number: int) -> None:
    """All children are done."""
    marks.parents()


@app.task(name="answer")  # type: ignore[untyped-decorator]
def answer(results: list[None]) -> int:
    """The same, for the caller."""
    return len(results)


def ask() -> None:
    """Sends chords one by one, each when the one before is answered; prints what each has taken."""
    for _ in range(int(PARENTS)):
        start = time.perf_counter()
        found = chord(child.s(0, index) for index in range(int(CHILDREN)))(answer.s()).get(timeout=60)
        if found != int(CHILDREN):
            raise SystemExit(f"expected {CHILDREN} results, got {found}")
        print(time.perf_counter() - start)


def enqueue() -> None:
    """Sends all chords."""
    start = time.perf_counter()
    for number in range(int(PARENTS)):
        chord(child.s(number, index) for index in range(int(CHILDREN)))(parent.s(number))
    print(time.perf_counter() - start)


if __name__ == "__main__":
    if ACTION == "enqueue":
        enqueue()
    elif ACTION == "ask":
        ask()
    else:
        app.worker_main(
            [
                "worker",
                "--pool=prefork",
                f"--concurrency={WORKERS}",
                "--loglevel=ERROR",
                "--without-gossip",
                "--without-mingle",
                "--without-heartbeat",
            ]
        )
