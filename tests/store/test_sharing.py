"""A ledger shared: by processes, after a fork, pickled, and by threads."""

import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from acker.errors import (
    TrackRejected,
)
from acker.ledger.calls.calls import Writer
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger
from acker.ledger.settings.config import TopologyConfig
from tests.helpers.builders.ledgers import Trees, counted, opened


def in_child(work: Callable[[], object]) -> int:
    """Runs `work` in a forked child; returns its exit status, 0 where nothing was raised."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_ledger_works_after_a_fork_in_parent_and_child(url: str) -> None:
    ledger = opened(url)
    mine, yours = Trees(2).track(ledger), Trees(2).track(ledger)

    def child() -> None:
        for _ in range(20):
            Trees(1).track(ledger)
        yours.complete(ledger)

    assert in_child(child) == 0
    for _ in range(20):
        Trees(1).track(ledger)
    mine.complete(ledger)
    counted(ledger, tracked=44, acked=4)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_while_other_threads_are_in_mid_call_harms_nobody(url: str) -> None:
    ledger = opened(url)
    stop = threading.Event()
    counts = [0] * 3

    def track(number: int) -> None:
        while not stop.is_set():
            Trees(1).track(ledger)
            counts[number] += 1

    threads = [threading.Thread(target=track, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(8):
            assert in_child(lambda: Trees(1).track(ledger)) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    counted(ledger, tracked=sum(counts) + 8)


def test_a_writer_of_the_parent_is_never_used_by_its_child(url: str) -> None:
    ledger = opened(url)
    Trees(1).track(ledger)
    writer = ledger.core.writers.take()
    ledger.core.writers.give(writer)

    def child() -> None:
        assert ledger.core.writers.take().id != writer.id

    assert in_child(child) == 0
    assert ledger.core.writers.take().id == writer.id


def test_a_writer_that_was_used_for_long_is_not_shared_between_threads() -> None:
    core = Core(TopologyConfig("core", 1))
    taken: list[Writer] = []

    def use(_: int) -> bool:
        writer = core.writers.take()
        alone = writer not in taken
        taken.append(writer)
        taken.remove(writer)
        core.writers.give(writer)
        return alone

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(use, range(2000)))


def test_a_pickled_ledger_works_in_another_process(url: str) -> None:
    ledger = opened(url, ackers=2)
    trees = [Trees(3).track(ledger) for _ in range(4)]
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        pool.starmap(complete, [(pickle.dumps(ledger), one) for one in trees])
    counted(ledger, tracked=12, acked=12)


def complete(pickled: bytes, trees: Trees) -> None:
    ledger: Ledger = pickle.loads(pickled)
    trees.complete(ledger)


def test_a_copy_shares_no_writer_with_its_original(url: str) -> None:
    ledger = opened(url)
    Trees(1).track(ledger)
    copy: Ledger = pickle.loads(pickle.dumps(ledger))
    assert copy.config == ledger.config
    assert copy.core.spouts == ledger.core.spouts
    assert copy.core.writers.take().id != ledger.core.writers.take().id


def test_threads_share_one_ledger(url: str) -> None:
    ledger = opened(url, ackers=2)

    def work(number: int) -> None:
        trees = Trees(number % 5 + 1).track(ledger, f"spout-{number % 40}")
        trees.complete(ledger, 0)
        ledger.fail(trees.anchors[1:2], "bad")

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(work, range(200)))
    sizes = [number % 5 + 1 for number in range(200)]
    counted(ledger, tracked=sum(sizes), acked=200, failed=sum(size > 1 for size in sizes))


def test_the_high_water_mark_is_exact_under_threads_that_track_at_once(url: str) -> None:
    clients = [opened(url, high_water_mark=100) for _ in range(4)]

    def track(number: int) -> int:
        try:
            Trees(3).track(clients[number % 4], f"spout-{number % 3}")
        except TrackRejected:
            return 0
        return 3

    with ThreadPoolExecutor(8) as pool:
        accepted = sum(pool.map(track, range(80)))
    assert accepted == 99
    counted(clients[0], tracked=99, rejected=3 * 80 - 99)
