"""Tickers that are stopped or killed while they look why trees expire: these expire all the same, once."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from acker.embedded.processes import tied
from acker.inspect.operate.ticker_hooks import HOOKS
from acker.inspect.trees import failures
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.ids import Ids
from acker.ledger.tick import tick, ticker
from acker.ledger.tick.ticker import Ticker
from acker.store.client import Store
from acker.store.operation import Request
from acker.store.replies import seconds
from acker.streams import Stream
from acker.streams.commits.contents import Commit
from acker.streams.log import holders
from tests.helpers.builders.ledgers import Trees, reported
from tests.helpers.builders.streaming import commit, emit, stage, take
from tests.helpers.builders.tickers import running
from tests.helpers.servers.sentinels import Sentinels
from tests.helpers.servers.servers import binary, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PATIENCE = 90.0
ROOT = Path(__file__).parents[3]
NOBODY = "in stream {} for its first subscription, taken by nobody"
TAKEN = "in stream words for subscription count, taken by query 5f0c (batch 17)"
END = 1_000
"""More exchanges than a look has: the signal comes between the look and the drain."""


@contextmanager
def stopping(url: str, name: str, after: int, hold: float = tick.HOLD) -> Iterator["subprocess.Popen[bytes]"]:
    """A ticker of its own, which a signal meets in its first look that finds something."""
    words = ["--url", url, "--signal", name, "--after", str(after), "--hold", str(hold)]
    command = tied([sys.executable, "-m", "tests.helpers.faults.stopped_ticker", *words])
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        yield process
    finally:
        process.kill()
        process.wait(60)


def stopped(process: "subprocess.Popen[bytes]") -> bool:
    """Whether a process is stopped, or has ended."""
    if process.poll() is not None:
        return True
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def opened(url: str, message_timeout: float = 2.0) -> Ledger:
    store = Store(url, timeout=PATIENCE)
    return open_ledger(store, "t", ackers=2, message_timeout=message_timeout, downtime=0)


def waiting(ledger: Ledger) -> dict[str, Ids]:
    """Trees by their places: `lines`, which nobody has taken, and `words`, which a query has."""
    taken = emit(ledger, 40, "taken")
    Stream(ledger, "words").subscribe("count")
    commit(ledger, 0, Commit((stage(ledger, taken),), (take(ledger, "taken"),)))
    had = take(ledger, "words", "count")
    ledger.store.send([holders.noting(ledger.core, had, "5f0c", 17)])
    return {NOBODY.format("lines"): emit(ledger, 60), TAKEN: taken}


def check(ledger: Ledger, trees: dict[str, Ids]) -> None:
    """Each tree has expired, once, for its reason."""
    count = sum(map(len, trees.values()))
    counters = ledger.counters()
    assert (counters["expired"], counters["tracked"], counters["acked"]) == (count, count, 0)
    told = reported(ledger, *slabs(trees))
    assert set(told.values()) == {1}
    assert {(anchor, why) for anchor, _, why in told} == {
        (anchor, reason) for reason, anchors in trees.items() for anchor in anchors.tolist()
    }
    for reason, anchors in trees.items():
        found = ledger.run(failures.find(ledger.core, int(anchors[0])))
        assert found is not None
        assert (found.status, found.cause.reason) == ("expired", reason)


def slabs(trees: dict[str, Ids]) -> list[Trees]:
    """The trees as slabs, for those who resolve outcomes."""
    made = []
    for anchors in trees.values():
        one = Trees(len(anchors))
        one.anchors = anchors
        made.append(one)
    return made


def expired(ledger: Ledger) -> int:
    return ledger.counters()["expired"]


@pytest.mark.parametrize("after", [3, END])
@pytest.mark.parametrize("name", ["SIGKILL", "SIGSTOP"])
def test_trees_expire_in_time_whatever_stops_the_look(valkey_url: str, name: str, after: int) -> None:
    ledger = opened(valkey_url)
    trees = waiting(ledger)
    with stopping(valkey_url, name, after) as process:
        wait_until(lambda: stopped(process))
        assert (process.poll() is not None) == (name == "SIGKILL")
        assert expired(ledger) == 0
        with running(Ticker(Store(valkey_url), hooks=HOOKS)):
            wait_until(lambda: expired(ledger) == 100, timeout=ticker.LOOK_EVERY + 10)
        check(ledger, trees)
        if name == "SIGSTOP":  # it goes on, and has nothing to add
            more = emit(ledger, 5, "more")
            process.send_signal(signal.SIGCONT)
            wait_until(lambda: expired(ledger) == 105)
            check(ledger, {**trees, NOBODY.format("more"): more})


def test_old_reasons_of_a_stopped_ticker_are_looked_for_again(valkey_url: str) -> None:
    ledger = opened(valkey_url)
    anchors = emit(ledger, 30)
    with stopping(valkey_url, "SIGSTOP", END, hold=2.0) as process:
        wait_until(lambda: stopped(process))
        begun = now(ledger)
        commit(ledger, 0, Commit((stage(ledger, anchors),), (take(ledger, "lines"),)))
        wait_until(lambda: now(ledger) > begun + 2.0)
        assert expired(ledger) == 0
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: expired(ledger) == 30)
    check(ledger, {NOBODY.format("words"): anchors})


def now(ledger: Ledger) -> float:
    """The server's clock, in seconds."""
    [instant] = ledger.store.send([Request(ledger.core.shards[0].clock, ["TIME"])])
    return seconds(instant)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSTOP"])
def test_trees_expire_once_for_true_reasons_over_a_failover(tmp_path: Path, name: str) -> None:
    with Sentinels(tmp_path, binary=binary("valkey")) as sentinels:
        ledger = opened(sentinels.url)
        trees = waiting(ledger)
        with stopping(sentinels.url, name, 6) as process:
            wait_until(lambda: stopped(process))
            assert sentinels.call(0, "WAIT", 1, 60_000) == 1
            sentinels.servers[0].kill()
            with running(Ticker(Store(sentinels.url, timeout=PATIENCE), hooks=HOOKS)):
                wait_until(lambda: expired(ledger) == 100, timeout=PATIENCE)
            assert sentinels.call(1, "ROLE")[0] == b"master"
            check(ledger, trees)
            if name == "SIGSTOP":
                more = emit(ledger, 5, "more")
                process.send_signal(signal.SIGCONT)
                wait_until(lambda: expired(ledger) == 105, timeout=PATIENCE)
                check(ledger, {**trees, NOBODY.format("more"): more})
