"""The pipeline of examples/scheduled_orders.py: scheduled jobs, a long downtime, kills and a re-drive."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import pytest

from acker.ledger.client import open_ledger
from acker.store.client import Store
from acker.streams.dead_letters import dead_letters
from examples.scheduled_orders import ATTEMPTS

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_each_order_is_counted_once_or_given_up(valkey_url: str, tmp_path: Path, java_home: Path) -> None:
    """The store keeps the rows of some orders, and the ids of others."""
    command = [sys.executable, "-m", "examples.scheduled_orders", "--url", valkey_url, "--keep", "both"]
    program = subprocess.Popen(
        [*command, "--directory", str(tmp_path), "--away", "2"],  # a tree expires after 1.5 at most
        cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = program.communicate()
    finally:
        with suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(program.pid, signal.SIGTERM)
    logs = "\n".join(f"== {log.name}\n{log.read_text()[-2_000:]}" for log in sorted(tmp_path.glob("*.log")))
    assert program.returncode == 0, f"{said}\n{logs}"
    # Nothing used up an attempt while nobody worked on it.
    [expired] = re.findall(r"^price was away for .*: (\d+) expired$", said, re.MULTILINE)
    assert expired == "0", said
    assert said.count(": killed after") == 3, said

    orders = {
        order["id"]: order["items"]
        for part in (tmp_path / "orders").glob("*.json")
        for order in map(json.loads, part.read_text().splitlines())
    }
    letters = store_letters(valkey_url)
    dead = {one.message_id.decode(): one for one in letters}
    assert len(dead) == len(letters)
    assert all(one.reason for one in letters)
    with closing(sqlite3.connect(tmp_path / "revenue.db")) as db:
        rows = db.execute("select id, line, cents from revenue").fetchall()
    prices = {"tea": 350, "cup": 1200}
    # Once: a line that was counted twice, or with another's price, would be another multiset.
    assert Counter(rows) == Counter(
        (order, line, int(item["quantity"]) * prices[item["sku"]])
        for order, items in orders.items() if order not in dead
        for line, item in enumerate(items)
    )  # fmt: skip
    # What the service refused was driven again when it was well.
    refused = {order for order in orders if int(order[1:]) % 31 == 0}
    assert refused & {order for order, _, _ in rows}, said
    hopeless = {
        order
        for order, items in orders.items()
        if any(item["sku"] not in prices or not item["quantity"].isdigit() for item in items)
    }
    assert hopeless <= dead.keys() <= orders.keys()

    calls = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    killed = {call["order"] for call in calls if call["phase"] == "killed"}
    assert killed
    assert killed < orders.keys() - hopeless | killed  # the kill left some alone
    # A re-drive begins anew, with as many attempts.
    asked = Counter((call["order"], call["line"], call["phase"] == "second drive") for call in calls)
    often = {
        (order, line): times
        for (order, line, _), times in asked.items()
        if times > ATTEMPTS + 1 + (order in killed)
    }
    assert not often, said


def store_letters(url: str) -> list[dead_letters.DeadLetter]:
    """All dead letters of the program's topology."""
    ledger = open_ledger(Store(url), "scheduled-orders")
    return list(ledger.run(dead_letters.page(ledger.core, limit=1000)).letters)
