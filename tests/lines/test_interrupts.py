"""An interrupt at any step of a process that works on a line: none of its threads goes on."""

import threading

import pytest

from acker.ledger.client import open_ledger
from acker.lines import line as lines
from acker.store.client import Store
from acker.workers import wakeups
from tests.helpers.builders.line_job import Job
from tests.helpers.faults.interrupts import each
from tests.helpers.servers.servers import wait_until


def test_an_interrupt_at_any_step_leaves_no_thread_at_work(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Threads that the store has wait end with their wait, of which there are some hundred here.
    monkeypatch.setattr(wakeups, "_BLOCK", 0.02)
    monkeypatch.setattr(lines, "_PAUSE", 0.02)
    line = Job(open_ledger(Store(valkey_url), "t", ackers=2)).line

    def work() -> None:
        with line.work():
            pass

    work()
    before = threading.active_count() + 1  # the thread that checks

    def ended() -> bool:
        return threading.active_count() <= before

    def check() -> None:
        wait_until(ended)
        with line.work():
            assert threading.active_count() > before

    assert each(("acker/lines/line.py", "acker/ledger/loops.py"), work, check) > 20
