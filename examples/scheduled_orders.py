"""Two jobs on a schedule, a service that fails, a job that is away and is killed: each order counted once.

    python -m examples.scheduled_orders [--url redis://127.0.0.1:6379/0] [--directory DIRECTORY] [--keep both]

      orders/*.json -> job "validate" -> stream "lines" -> job "price" -> revenue.db
                                                             | one HTTP call for each line
                                                             v
                                                           price_service.py

Each run of a job is a process of its own: it works on what there is, and ends. "price" is away for ten
message timeouts, both are killed in the middle of a run, and what the service refused is driven again
when it is well. At the end a verdict: each order is in the table once, or is a dead letter with its reason,
never both. Needs httpx.
"""

import argparse
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import httpx
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker.embedded import EmbeddedServer
from acker.inspect.operate.ticker_hooks import HOOKS
from acker.ledger.tick.ticker import Ticker
from acker.spark import Acker, Collector, PermanentFailure
from acker.streams.dead_letters import dead_letters
from acker.streams.dead_letters.dead_letters import DeadLetter, Filter
from acker.streams.sources import kept_rows
from examples.common import finish, session, write_json
from examples.price_service import Service

ATTEMPTS = 2
MESSAGE_TIMEOUT = 15.0
"""Seconds. It is for the work in hand: a record that waits for the next run of a job uses up no attempt."""
ORDER = "id string, items array<struct<sku string, quantity string>>"
FILES, ORDERS_OF_A_FILE = 12, 20
KEEP = {"rows": ["rows"], "ids": ["ids"], "both": ["rows", "ids"]}
"""Kept kinds of records: of the first half of the orders, and of the second half."""


def shop(url: str) -> Acker:
    """The common part of the jobs; the first of them makes the topology."""
    return Acker(url, "scheduled-orders", ackers=2, message_timeout=MESSAGE_TIMEOUT, downtime=86_400)


# --- the jobs


def validate(url: str, directory: Path, keep: Literal["rows", "ids"]) -> None:
    """Job A: files become a spout; each order becomes its lines, or is given up at once."""
    acker, spark = shop(url), session("local[2]")
    there = str(directory / "orders")
    files = spark.readStream.schema(ORDER).option("maxFilesPerTrigger", 4).json(there)

    def reread(ids: DataFrame) -> DataFrame:
        return spark.read.schema(ORDER).json(there).join(ids, "id", "left_semi")

    orders = acker.track(
        files, "orders", message_id="id", attempts=ATTEMPTS, backoff=0.5, keep=keep,
        reread=reread if keep == "ids" else None,
    )  # fmt: skip

    @acker.bolt("validate")
    def explode(batch: DataFrame, collector: Collector) -> None:
        bad = "exists(items, item -> try_cast(item.quantity as int) is null)"
        reason = F.concat(F.lit("malformed: "), F.to_json("items"))
        collector.fail(batch.filter(bad), reason, retry=False)  # another attempt would not help
        items = F.posexplode("items").alias("line", "item")
        lines = batch.filter(f"not {bad}").select("id", F.size("items").alias("of"), items, "_acker")
        quantity = F.col("item.quantity").cast("int").alias("quantity")
        collector.emit(lines.select("id", "line", "of", "item.sku", quantity, "_acker"), stream="lines")

    finish(orders.writeStream.foreachBatch(explode), directory / "checkpoints" / "validate")


class Price:
    """The price of a line, in cents: by a call of the service, unless the table knows it.

    Each task has a copy of its own, so what it opens is opened by its first call.
    """

    def __init__(self, service: str, table: Path) -> None:
        self.service, self.table = service, table
        self.http: httpx.AsyncClient | None = None

    async def __call__(self, line: dict[str, Any]) -> tuple[str, int, int, int]:
        """A line with its price."""
        if self.http is None:
            self.http, self.db = httpx.AsyncClient(base_url=self.service), sqlite3.connect(self.table)
        query = "select cents from revenue where id = ? and line = ?"
        # A run that was killed may have written the line before it could ack it.
        if known := self.db.execute(query, (line["id"], line["line"])).fetchone():
            return line["id"], line["line"], line["of"], known[0]
        answer = await self.http.get(
            f"/{line['sku']}", params={"order": line["id"], "line": str(line["line"])}
        )
        if answer.status_code == 404:
            raise PermanentFailure(f"nobody sells {line['sku']}")
        answer.raise_for_status()  # fails this order, and no other: it is tried again
        return line["id"], line["line"], line["of"], line["quantity"] * answer.json()


def price(url: str, directory: Path, service: str) -> None:
    """Job B: asks for the price of each line, and writes the orders of which it has got all prices."""
    acker, spark = shop(url), session("local[2]")
    columns = "id string, line int, of int, sku string, quantity int, _acker bigint"
    lines = acker.read_stream(spark, "lines", schema=columns, max_segments=4)
    table = directory / "revenue.db"
    revenue = sqlite3.connect(table, check_same_thread=False)
    revenue.execute("create table if not exists revenue (id, line, cents, primary key (id, line))")

    @acker.bolt("price")
    def write(batch: DataFrame, collector: Collector) -> None:
        schema = "id string, line int, of int, cents int"
        with collector.keep_alive(batch):  # the service may take longer than the message timeout
            priced = collector.map(batch, Price(service, table), schema, concurrency=8, timeout=10)
            rows = priced.select("id", "line", "of", "cents").collect()
            got = Counter(row.id for row in rows)
            whole = [(row.id, row.line, row.cents) for row in rows if got[row.id] == row.of]
            with revenue:  # one transaction; a line that comes again finds its own row
                revenue.executemany("insert or replace into revenue values (?, ?, ?)", whole)

    finish(lines.writeStream.foreachBatch(write), directory / "checkpoints" / "price")


# --- the schedule


def write_orders(directory: Path, part: int) -> None:
    """A file of orders: in a few a quantity is no number, or a thing is asked for that nobody sells."""
    orders: list[dict[str, object]] = []
    for number in range(part * ORDERS_OF_A_FILE, (part + 1) * ORDERS_OF_A_FILE):
        items: list[dict[str, str]] = [{"sku": "tea", "quantity": str(number % 3 + 1)}]
        items += [{"sku": "cup", "quantity": "2"}] * (number % 3)
        if number % 50 == 17:
            items[0]["quantity"] = "two"
        if number % 60 == 33:
            items.append({"sku": "unicorn", "quantity": "1"})
        orders.append({"id": f"o{number}", "items": items})
    write_json(directory / "orders", f"{part}.json", orders)


class Schedule:
    """Starts the jobs, and kills them."""

    def __init__(self, url: str, directory: Path, service: Service, keep: str) -> None:
        self.url, self.directory, self.service, self.keep = url, directory, service, keep

    def validate_files(self, parts: range) -> None:
        """Writes files of orders, and runs the first job on them: it is killed where it plans a batch."""
        write_orders(self.directory, parts[0])
        offsets = self.directory / "checkpoints" / "validate" / "offsets"
        planned = offsets / str(len(list(offsets.glob("[0-9]*"))))
        self.run("validate", kill_when=planned.exists)
        for part in parts[1:]:
            write_orders(self.directory, part)
        self.run("validate")

    def run(self, job: str, kill_when: Callable[[], bool] | None = None) -> None:
        """One run of a job, to its end; or until it is killed, as hard as it goes."""
        command = [sys.executable, "-m", "examples.scheduled_orders", "--url", self.url, "--job", job]
        command += ["--directory", str(self.directory), "--service", self.service.url, "--keep", self.keep]
        began = time.monotonic()
        with (self.directory / f"{job}.log").open("a") as log:
            process = subprocess.Popen(
                command, cwd=Path(__file__).parent.parent, stdout=log, stderr=log, start_new_session=True
            )
        try:
            while process.poll() is None and not (kill_when and kill_when()):
                time.sleep(0.01)
        finally:
            killed = process.poll() is None
            if killed:
                os.killpg(process.pid, signal.SIGKILL)
        how = "killed" if killed else f"ended with {process.wait()}"
        print(f"{job}: {how} after {time.monotonic() - began:.0f} s", flush=True)

    def until_all_is_done(self, acker: Acker) -> None:
        """Runs both jobs in turn until no order is under way."""
        with acker.open() as topology:
            for _ in range(10):
                self.run("price")
                acker.settle()
                if not topology.ledger.run(kept_rows.pending(topology.ledger.core, "orders"))["pending"]:
                    return
                self.run("validate")
        sys.exit("orders are still under way: the jobs' logs may tell why")


def story(url: str, directory: Path, timeouts_away: float, keep: str) -> bool:
    """All of it; returns whether the verdict is good. timeouts_away: of "price", in message timeouts."""
    away = timeouts_away * MESSAGE_TIMEOUT
    acker, service = shop(url), Service(directory / "calls.jsonl")
    topology = acker.open()
    threading.Thread(target=service.serve_forever, daemon=True).start()
    # In production: `acker tick`, or `acker serve`.
    stop = threading.Event()
    ticker = threading.Thread(
        target=Ticker(topology.ledger.store, [acker.topology], hooks=HOOKS).run, args=(stop,)
    )
    ticker.start()
    kinds = KEEP[keep]
    schedule = Schedule(url, directory, service, kinds[0])
    try:
        with acker.settling():
            back = time.monotonic() + away
            of_a_kind = FILES // len(kinds)
            for half, schedule.keep in enumerate(kinds):
                schedule.validate_files(range(half * of_a_kind, (half + 1) * of_a_kind))
            time.sleep(max(0.0, back - time.monotonic()))
            print(f"price was away for {away:g} s: {topology.counters()['expired']} expired", flush=True)
            schedule.run("price", kill_when=lambda: sum(service.seen.values()) >= 30)
            service.phase = "first drive"
            schedule.until_all_is_done(acker)
            verdict(directory, letters(acker))
            service.well, service.phase = True, "second drive"
            again = sum(acker.replay(matching=one) for one in (Filter(reason="50"), Filter(status="expired")))
            print(f"{again} dead letters are driven again", flush=True)
            schedule.run("validate")
            schedule.until_all_is_done(acker)
            return verdict(directory, letters(acker))
    finally:
        stop.set()
        ticker.join()
        topology.close()
        service.shutdown()


# --- the verdict


def letters(acker: Acker) -> list[DeadLetter]:
    """All dead letters, of which there are fewer than a page has."""
    with acker.open() as topology:
        return list(topology.ledger.run(dead_letters.page(topology.ledger.core, limit=1000)).letters)


def verdict(directory: Path, given_up: list[DeadLetter]) -> bool:
    """Checks that each order is whole in the table or a dead letter, and no line was asked for too often."""
    texts = [line for part in (directory / "orders").glob("*.json") for line in part.read_text().splitlines()]
    orders = {order["id"]: len(order["items"]) for order in map(json.loads, texts)}
    with sqlite3.connect(directory / "revenue.db") as db:
        found = dict(db.execute("select id, count(*) from revenue group by id").fetchall())
    dead = {letter.message_id.decode(): letter.reason for letter in given_up}
    both, neither = found.keys() & dead.keys(), orders.keys() - found.keys() - dead.keys()
    partly = [order for order, lines in found.items() if lines != orders.get(order)]
    silent = [order for order, reason in dead.items() if not reason]
    calls = [json.loads(line) for line in (directory / "calls.jsonl").read_text().splitlines()]
    hit = {call["order"] for call in calls if call["phase"] == "killed"}
    asked = Counter((call["order"], call["line"], call["phase"]) for call in calls)
    often = [one for one, times in asked.items() if one[0] not in hit and times > ATTEMPTS + 1]
    print(
        f"{len(orders)} orders: {len(found)} counted, {len(dead)} dead letters, {len(both)} both, "
        f"{len(neither)} neither, {len(partly)} in part, {len(silent)} without a reason; {len(calls)} calls, "
        f"{len(often)} lines asked for too often, {len(hit)} orders hit by the kill",
        flush=True,
    )
    for reason, times in Counter(map(dead_letters.cause, dead.values())).items():
        print(f"  {times} dead letters: {reason.splitlines()[0]}", flush=True)
    return not (both or neither or partly or silent or often or len(dead) != len(given_up))


def main() -> None:
    """The whole story, or one run of a job of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--url", help="default: a server of its own")
    parser.add_argument("--directory", type=Path, help="default: a new one, which is removed at the end")
    parser.add_argument("--job", choices=["validate", "price"], help="one run of a job")
    parser.add_argument("--service", default="", help="the price service, for --job price")
    parser.add_argument("--away", type=float, default=10, help="message timeouts for which price is away")
    parser.add_argument("--keep", choices=KEEP, default="rows", help="what the store keeps of an order")
    given = parser.parse_args()
    if given.job == "validate":
        validate(given.url, given.directory, given.keep)
    elif given.job == "price":
        price(given.url, given.directory, given.service)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            directory = (given.directory or Path(temporary)).absolute()
            directory.mkdir(parents=True, exist_ok=True)
            if given.url:
                good = story(given.url, directory, given.away, given.keep)
            else:
                with EmbeddedServer(directory / "server") as server:
                    good = story(server.url, directory, given.away, given.keep)
        sys.exit(not good)


if __name__ == "__main__":
    main()
