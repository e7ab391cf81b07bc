"""A Chromium, and a service with traffic for it to show. One of each serves all tests of this directory.

They last as long as the package and not as the session: while Playwright runs, no other test could run an
event loop in this thread.
"""

import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from acker import Topology
from acker.embedded import EmbeddedServer
from acker.ledger import ids
from api.asgi.dashboard import prepare
from docs.screenshots import ARGUMENTS
from tests.helpers.builders.ledgers import Trees
from tests.helpers.faces.api import serving
from tests.helpers.faces.browser import HOSTILE, Axe, NewPage, World, bury

REASONS = ("no such word", "bad encoding: expected UTF-8", "<img src=x onerror=alert(1)> is no word")
_BEAT = 0.1


def emit(topology: Topology, count: int, dice: random.Random, number: int) -> None:
    """One beat of it: `count` trees, whose outcomes so far are confirmed."""
    spout, bolt = topology.spout("sentences"), topology.bolt("split")
    for index in range(count):
        [line] = spout.emit(message_id=f"poem.txt:{number + index}")
        words = [bolt.emit([line])[0] for _ in range(3)]
        bolt.ack(line)
        fate = dice.random()
        if fate < 0.02:
            bolt.fail(words[0], dice.choice(REASONS))
        elif fate < 0.97:
            for word in words:
                bolt.ack(word)
    topology.flush()
    for outcome in spout.outcomes(timeout=0):
        spout.confirm(outcome)


@contextmanager
def flowing(topology: Topology, a_beat: int = 10) -> Iterator[None]:
    """Lets it flow in a thread, some trees each tenth of a second."""
    stop = threading.Event()
    dice = random.Random(7)

    def run() -> None:
        number = 0
        while not stop.wait(_BEAT):
            count = max(1, round(a_beat * dice.uniform(0.5, 1.5)))
            emit(topology, count, dice, number)
            number += count

    thread = threading.Thread(target=run, name="traffic", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)


ROOT = Path(__file__).parent.parent.parent
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")

expect.set_options(timeout=60_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives the tests of this directory the time that the first of them needs to build the dashboard."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """The Chromium of this machine; without one the test is skipped, but fails where CI is set."""
    program = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if program is None:
        message = "no Chromium on PATH (apt-get install chromium)"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture(scope="package")
def dashboard() -> None:
    """The dashboard, built from what is in the checkout now."""
    prepare()


@pytest.fixture(scope="package")
def world(dashboard: None) -> Iterator[World]:
    """`words` has traffic, `still` 124 trees, some with hostile message ids, and `letters` dead letters."""
    with (
        EmbeddedServer(append_only=False) as server,
        Topology(server.url, "words", message_timeout=4) as words,
        serving(server.url, writes_per_second=1000, log_level="error") as address,
        flowing(words, 4),
    ):
        made = World(server.url, address)
        still = made.ledger("still", ackers=2, message_timeout=3600.0)
        Trees(120).track(still, "lines")
        anchors = ids.new_anchors(len(HOSTILE))
        still.track(anchors, ids.new_ids(len(HOSTILE)), HOSTILE, spout="hostile")
        bury(made.ledger("letters", ackers=1))
        yield made


@pytest.fixture
def new_page(browser: Browser, world: World) -> Iterator[NewPage]:
    """Opens a page in a tab of its own, `new_page(path, address=..., **options of the context)`.

    At the end no page may have broken the policy, nor have failed in its scripts.
    """
    contexts: list[BrowserContext] = []
    troubles: list[str] = []

    def said(message: ConsoleMessage) -> None:
        # A refused or failed request is shown there too, and it is for the test to say whether it should be.
        if message.type == "error" and "Failed to load resource" not in message.text:
            troubles.append(message.text)

    def opened(path: str = "/", address: str = "", **options: object) -> Page:
        options = {"viewport": {"width": 1440, "height": 900}, "reduced_motion": "reduce", **options}
        contexts.append(browser.new_context(**options))  # type: ignore[arg-type]
        page = contexts[-1].new_page()
        page.set_default_timeout(60_000)
        page.on("console", said)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto((address or world.address) + path)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not troubles


@pytest.fixture(scope="package")
def axe(dashboard: None) -> Axe:
    """The faults of a page outside of the elements `beyond`, by all rules of axe-core or the named ones."""
    sources = ROOT / "dashboard"
    subprocess.run([sys.executable, sources / "build.py", "install"], check=True)
    source = (sources / "node_modules" / "axe-core" / "axe.min.js").read_text()

    def violations(page: Page, *rules: str, beyond: str = "") -> list[str]:
        if not page.evaluate("'axe' in window"):
            page.evaluate(source)
        run = "([of, how]) => axe.run({ include: document, ...of }, how).then(of => of.violations)"
        how = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
        found = page.evaluate(run, [{"exclude": [[beyond]]} if beyond else {}, how])
        return [f"{one['id']}: {[node['html'][:200] for node in one['nodes'][:3]]}" for one in found]

    return violations
