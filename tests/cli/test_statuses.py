"""Exit statuses: every command has a row here, and ends with the status that its row promises."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from acker.cli.shared.statuses import HELP, Status
from acker.collectors.topology import Topology
from acker.ledger.client import Ledger
from acker.streams import Stream, StreamWriter
from acker.streams.dead_letters import dead_letters
from acker.streams.log import subscriptions
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers.builders.counting import counting
from tests.helpers.builders.kept_rows import fail, lines
from tests.helpers.faces.cli import Acker, commands, track
from tests.helpers.faults.damages import damage, two

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
COUNTING = "from tests.helpers.builders.counting import counting\n\nfunction = counting()\n"
DONE, TROUBLE, USAGE, STORE, MISSING, PARTLY, INTERRUPTED = Status
AWAY = ("--url", "redis://127.0.0.1:1/0", "--timeout", "0.2")
TABLE: dict[str, tuple[str, dict[str, Status]]] = {
    # command: arguments that are right -> what else it is given, and how that ends. {names} are of `shop`.
    "topologies": ("", {"": DONE, "words": USAGE}),
    "stats": ("words", {"words": DONE, "none": MISSING, "no/name": USAGE}),
    "health": ("words", {"words": TROUBLE, "good": DONE, "none": MISSING, "words --set full=x": USAGE}),
    "complete": (
        "words --before 1h",
        {
            "words --before 2020-01-01T00:00:00Z": TROUBLE,
            "words --before 2020-01-01T00:00:00": USAGE,
            "words": USAGE,
            "none --before 1h": MISSING,
        },
    ),
    "configure": (
        "words",
        {"words": DONE, "none": MISSING, "words --set x=1": USAGE, "words --set message_timeout=9": TROUBLE},
    ),
    "trees": (
        "words",
        {"words": DONE, "none": MISSING, "words --spout none": MISSING, "words --limit 0": USAGE},
    ),
    "tree": ("words 1", {"words {tree}": DONE, "words 11": MISSING, "words -12": MISSING, "words x": USAGE}),
    "find": (
        "words 1",
        {"words 1": DONE, "words none": MISSING, "none 1": MISSING, "words --base64 *": USAGE},
    ),
    "why": (
        "words 1",
        {"words {tree}": DONE, "words 11": MISSING, "words -12 --json": MISSING, "words x": USAGE},
    ),
    "stuck": ("words", {"words": DONE, "none": MISSING, "no/name": USAGE}),
    "failures": ("words", {"words": DONE, "none": MISSING, "no/name": USAGE}),
    "drops": ("words", {"words": DONE, "none": MISSING, "no/name": USAGE}),
    "fail": (
        "words 1",
        {
            "words {tree}": DONE,
            "words {other} 11": PARTLY,
            "words 11": MISSING,
            "words x": USAGE,
            "words --all": USAGE,
            "words --spout none --yes": MISSING,
        },
    ),
    "reset-timeout": (
        "words 1",
        {
            "words {tree}": DONE,
            "words {tree} 11": PARTLY,
            "words 12": MISSING,
            "words x": USAGE,
            "words --all": DONE,
            "words --all 11": USAGE,
        },
    ),
    "lines": ("words", {"words": DONE, "words 11": MISSING, "none": MISSING, "words x": USAGE}),
    "streams": ("words", {"words": DONE, "none": MISSING, "no/name": USAGE}),
    "subscribe": (
        "words lines s",
        {
            "words lines s": DONE,
            "words parts count --external": DONE,
            "words lines s --external": USAGE,
            "words lines \udcff": USAGE,
        },
    ),
    "rename-subscription": (
        "words lines s t",
        {
            "words lines s t": USAGE,
            "words parts count price": MISSING,
            "words lines \udcff t": USAGE,
        },
    ),
    "reconcile": (
        "words parts --subscription s --sql q",
        {
            "words parts --subscription s": USAGE,
            "words parts --subscription s --sql q --parquet p": USAGE,
            "words parts --subscription s --sql q --conf x": USAGE,
            "none parts --subscription s --sql q": MISSING,
        },
    ),
    "unsubscribe": (
        "words lines s",
        {
            "words lines s": DONE,
            "words lines none": MISSING,
            "words none s": MISSING,
            "words lines \udcff": USAGE,
        },
    ),
    "readers": ("words lines", {"words lines": DONE, "words none": MISSING, "words": USAGE}),
    "give-back": (
        "words lines r",
        {
            "words lines {reader} --subscription s": DONE,
            "words lines none": MISSING,
            "words lines \udcff": USAGE,
        },
    ),
    "dead-letters": (
        "words",
        {
            "words": DONE,
            "words --groups": DONE,
            "words --output -": DONE,
            "none": MISSING,
            "words --spout none": MISSING,
            "words --limit 0": USAGE,
        },
    ),
    "dead-letter": ("words 1-1@s", {"words {letter}": DONE, "words 1-1@s": MISSING, "words x": USAGE}),
    "replay": (
        "words --all",
        {
            "words {letter} 1-1@s": PARTLY,
            "words --all": DONE,
            "words 1-1@s": MISSING,
            "words 1-1@s 1-2@s": MISSING,
            "words --all --spout none": MISSING,
            "words": USAGE,
        },
    ),
    "discard": (
        "words --all --yes",
        {
            "words --yes {letter} 1-1@s": PARTLY,
            "words --all --yes": DONE,
            "words 1-1@s --yes": MISSING,
            "words --yes --spout none": MISSING,
            "words --all": USAGE,
        },
    ),
    "activity": (
        "words",
        {
            "words": DONE,
            "words --output -": DONE,
            "none": MISSING,
            "words --limit 0": USAGE,
            "words --action sing": USAGE,
        },
    ),
    "mark": (
        "words deploy",
        {"words deploy": DONE, "none deploy": MISSING, "words": USAGE, "words too many": USAGE},
    ),
    "pause": (
        "words s",
        {"words s": DONE, "words none": MISSING, "none s": MISSING, "words s.observed": USAGE},
    ),
    "resume": (
        "words s",
        {"words s": DONE, "words none": MISSING, "none s": MISSING, "words x/y": USAGE},
    ),
    "remove": (
        "words --yes",
        {
            "good --yes": DONE,
            "words --yes": TROUBLE,
            "none --yes": MISSING,
            "words --spout none --yes": MISSING,
            "words": USAGE,
        },
    ),
    "tick": (
        "--once",
        {
            "--once": DONE,
            "--once none": MISSING,
            "none": MISSING,
            "--once words none": PARTLY,
            "no/name": USAGE,
        },
    ),
    "serve": ("", {"--port 70000": USAGE, "--port {taken}": USAGE}),
    "server": ("", {"--port 70000": USAGE, "--port {taken}": USAGE}),
    "demo": ("", {"--lines x": USAGE, "--topology words": TROUBLE}),
    "drpc list": ("", {"": DONE, "words": USAGE}),
    "drpc show": ("count", {"count": DONE, "none": MISSING, f"count {'0' * 32}": MISSING, "count x": USAGE}),
    "drpc call": ("count 1", {"count 1 --wait 0.1": TROUBLE, "none 1": MISSING, "count {": USAGE}),
    "drpc work": (
        "tests.helpers.builders.counting:counting --topology words",
        {
            "tests.nowhere:f --topology words": MISSING,
            "tests:nothing --topology words": MISSING,
            "tests:__name__ --topology words": USAGE,
        },
    ),
    "drpc remove": ("count", {"count": DONE, "none": MISSING, "no/name": USAGE}),
}
ASKS_NO_STORE = {"server", "drpc work", "demo"}
"""They need none, or look at what they were given first, or wait longer than a test should."""


@pytest.fixture
def url(valkey_url: str) -> str:
    """Both kinds of servers would say the same."""
    return valkey_url


@pytest.fixture
def shop(ledger: Ledger) -> dict[str, object]:
    """A topology with trees, a dead letter and a reader; one where all is well; an idle function."""
    StreamSpout(ledger, SpoutOptions("s", "lines", "id", attempts=1)).write(lines(2))
    fail(ledger, lambda row: row["id"] == 1, "no such shop")
    settler.settle(ledger)
    Stream(ledger, "lines").subscribe("s")
    StreamWriter(ledger, "items").write(pa.table({"n": [7]}))
    Topology(ledger.store.url, "good", ackers=1)
    counting().register(Topology(ledger.store.url, "t", ackers=1))
    tree, other = track(ledger, "m", "n")
    [letter] = ledger.run(dead_letters.page(ledger.core)).letters
    slot = ledger.run(subscriptions.subscribe(ledger.core, "lines", "s"))
    ledger.run(subscriptions.claim(ledger.core, "lines", slot, "5f0c", 0, name="s"))
    return {"tree": tree, "other": other, "letter": letter.id, "reader": "5f0c"}


def test_every_command_has_a_row() -> None:
    assert commands().keys() == TABLE.keys()


@pytest.mark.parametrize("command", TABLE)
def test_a_command_ends_with_its_row(acker: Acker, shop: dict[str, object], command: str) -> None:
    right, rows = TABLE[command]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for arguments, status in rows.items():
            for name, value in {**shop, "taken": taken.getsockname()[1]}.items():
                arguments = arguments.replace(f"{{{name}}}", str(value))
            run = acker(*command.split(), *arguments.split())
            assert (arguments, run.status) == (arguments, status), run.error
            if status in (USAGE, STORE) or (status in (MISSING, TROUBLE) and not run.out):
                assert re.fullmatch(r"acker: [^\n]+\n", run.error)
    assert acker(*command.split(), *right.split(), "--nonsense", "x", "y").status == USAGE
    if command not in ASKS_NO_STORE:
        away = AWAY[:2] if command == "serve" else AWAY
        run = acker(*command.split(), *right.split(), *away)
        assert run.status == STORE, run.error


def test_a_topology_that_cannot_be_read_leaves_a_list_and_a_tick_done_in_part(acker: Acker, url: str) -> None:
    two(url)
    with damage(url, "counter"):
        assert acker("topologies").status == PARTLY
        assert acker("health", "damaged").status == STORE
    with damage(url, "setting"):
        run = acker("tick", "--once")
        assert (run.status, run.error.count("acker: damaged: ")) == (PARTLY, 1)
        assert re.search(r"^words ", run.out, re.MULTILINE)


def test_help_and_the_guide_say_all_statuses(acker: Acker) -> None:
    page = (DOCS / "cli.md").read_text()
    for one in Status:
        assert f"| {one.value} | {one.meaning}" in page
        assert f"{one.value} {one.meaning}" in HELP
    for command in ("", "drpc", *TABLE):
        run = acker(*command.split(), "--help")
        assert (run.status, " ".join(HELP.split()) in " ".join(run.out.split())) == (DONE, True), command


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, DONE)])
@pytest.mark.parametrize(
    "command", ["tick", "serve --port 0", "server --port 0", "drpc work {module} --topology t"]
)
def test_a_command_that_runs_until_it_is_stopped_ends_well_by_sigterm_alone(
    url: str, tmp_path: Path, command: str, number: signal.Signals, status: Status
) -> None:
    (tmp_path / "mine_to_work_on.py").write_text(COUNTING)
    words = command.format(module="mine_to_work_on:function").split()
    with started(words, url, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(number)
        assert process.wait(60) == status


def test_a_service_that_is_stopped_before_it_listens_ends_well(valkey_url: str) -> None:
    program = """
import signal, weakref
import uvicorn
from acker.cli import main

factory_of, get = uvicorn.Config.get_loop_factory, weakref.WeakValueDictionary.__getitem__

def begun(config):
    weakref.WeakValueDictionary.__getitem__ = struck
    return factory_of(config)()

def struck(known, key):  # uvloop looks for a transport when it begins to run
    weakref.WeakValueDictionary.__getitem__ = get
    signal.raise_signal(signal.SIGINT)
    return get(known, key)

uvicorn.Config.get_loop_factory = lambda config: lambda: begun(config)
main(["serve", "--port", "0"])
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ACKER_URL": valkey_url}
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == INTERRUPTED, run.stderr


def test_ctrl_c_interrupts_any_other_command(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        with started(["topologies"], url, tmp_path) as process, silent.accept()[0]:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == INTERRUPTED


@contextmanager
def started(words: list[str], url: str, directory: Path) -> Iterator["subprocess.Popen[str]"]:
    """A command as a process; its first line on stdout or stderr says that it has begun."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(directory)}
    if words[0] != "server":
        environment["ACKER_URL"] = url
    process = subprocess.Popen(
        [sys.executable, "-c", "from acker.cli import main; main()", *words],
        cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
