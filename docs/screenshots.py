"""Takes the screenshots of docs/: each view, light and dark, wide and as on a phone.

    uv run python docs/screenshots.py             all pictures
    uv run python docs/screenshots.py incident    the incident alone
    uv run python docs/screenshots.py functions   lines and functions alone

Most show the incident of examples/incident.py. Lines and functions have a store of their own, where a request
and a call stay half done. It needs a Chromium on this machine.
"""

import base64
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa  # noqa: TID251 - as users of functions do
from playwright.sync_api import Browser, Page, expect, sync_playwright

from acker import Topology
from acker.drpc import LinearDRPC, Out
from acker.embedded import EmbeddedServer
from acker.errors import FailedException
from acker.ledger.client import Ledger
from acker.lines import Gather, Line
from acker.lines import Out as Emitted
from acker.streams import SpoutOptions, Stream, StreamSpout
from examples import incident
from examples.reach import Distinct, Sum

DIRECTORY = Path(__file__).parent / "screenshots"
VIEWS = {
    "overview": "/",
    "charts": "/t/payments",
    "trees": "/t/search/trees",
    "failures": "/t/payments/outcomes?view=causes",
    "dead-letters": "/t/letters/dead-letters",
    "activity": "/t/backfill/activity",
}
FUNCTION_VIEWS = {
    "line": "/t/web/lines",
    "request": "/t/web/lines/{anchor}",
    "function": "/functions/reach",
    "call": "/functions/reach/{call}",
}
SIZES = {"": (1440, 900), "-phone": (390, 844)}
THEMES = {"": "light", "-dark": "dark"}
WHOLE = ("charts", "line", "request", "function", "call")
"""Views that are shown to their end: the others are lists."""
SECONDS = 60
"""Seconds for which records flow before the pictures are taken."""
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# A third of the bytes of a PNG.
_TO_WEBP = """async (png) => {
    const picture = await createImageBitmap(await (await fetch("data:image/png;base64," + png)).blob());
    const canvas = new OffscreenCanvas(picture.width, picture.height);
    canvas.getContext("2d").drawImage(picture, 0, 0);
    const blob = await canvas.convertToBlob({ type: "image/webp", quality: 0.6 });
    const bytes = new Uint8Array(await blob.arrayBuffer());
    return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}"""

# A topology without trouble reads its rate when it comes into view, and shows a dash until then.
_NO_LINE_TO_COME = """() => [...document.querySelectorAll(".topology .spark")].every(
    (line) => line.getBoundingClientRect().top > innerHeight || !line.textContent.includes("\u2013")
)"""


def main(which: str = "") -> None:
    """Writes a picture of each view, in each size and theme; of the incident's or the functions' alone."""
    for name, views in (("incident", an_incident), ("functions", functions)):
        if which in ("", name):
            with views() as urls:
                take(urls)


def take(urls: Mapping[str, str]) -> None:
    """Writes the pictures of some views."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("no Chromium on PATH: apt-get install chromium")
    DIRECTORY.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        for view, url in urls.items():
            for size in SIZES:
                for theme in THEMES:
                    shoot(browser, url, view, size, theme)
        browser.close()


@contextmanager
def an_incident() -> Iterator[dict[str, str]]:
    """The service of an incident whose records flow: the URLs of its views."""
    with EmbeddedServer(append_only=False) as server:
        incident.make(server.url)
        with serve(server.url) as address:
            incident.flow(server.url, SECONDS)
            stop = threading.Event()
            flowing = threading.Thread(target=incident.flow, args=(server.url, 3600.0, stop))
            flowing.start()
            try:
                yield {view: address + path for view, path in VIEWS.items()}
            finally:
                stop.set()
                flowing.join()


@contextmanager
def functions() -> Iterator[dict[str, str]]:
    """A function that is called, and a line, both with something half done: the URLs of their views."""
    stop = threading.Event()
    with EmbeddedServer(append_only=False) as server, serve(server.url) as address:
        topology = Topology(server.url, "web", ackers=4, message_timeout=3600.0)
        with reach(stop).work(topology, threads=4), ExitStack() as stack:
            stack.callback(stop.set)  # else the step that waits for it keeps the workers
            client = topology.drpc("reach")
            deadline = time.monotonic() + SECONDS
            while time.monotonic() < deadline:
                some = random.sample(sorted(SHARED), 3)
                client.execute_many([*some, *some, "no-such.com"], return_exceptions=True)
                time.sleep(0.5)
            call = client.begin("slow.com")
            call.begun.result()
            anchor = half_done(topology.ledger)
            yield {
                view: address + path.format(anchor=anchor, call=call.request)
                for view, path in FUNCTION_VIEWS.items()
            }


PEOPLE = [f"person-{number}" for number in range(40)]
SHARED = {f"{name}.com": PEOPLE[: 2 + 5 * place] for place, name in enumerate(("foo", "bar", "baz", "qux"))}
"""The people who have shared each URL."""


def reach(stop: threading.Event) -> LinearDRPC:
    """The function of docs/lines.md. One URL takes until `stop` is set."""

    def sharers(row: dict[str, Any], out: Out) -> None:
        if row["args"] == "no-such.com":
            raise FailedException(f"{row['args']}: nobody knows this URL")
        for person in SHARED.get(row["args"], PEOPLE):
            out.emit({"person": person, "url": row["args"]})

    def following(row: dict[str, Any], out: Out) -> None:
        if row["url"] == "slow.com":
            stop.wait()
        for number in range(10):
            out.emit({"follower": f"{row['person']}/{number % 7}"})

    text = pa.string()
    return (
        LinearDRPC("reach", idempotent=True, timeout=600.0)
        .step("sharers", sharers, columns={"person": text, "url": text})
        .step("following", following, columns={"follower": text})
        .gather("distinct", Distinct, tasks=6, by=["follower"], columns={"n": pa.int64()})
        .gather("sum", Sum)
    )


def half_done(ledger: Ledger) -> str:
    """A line of which nobody works on `look-up`: the anchor of its first request, which waits for that."""
    line = Line(ledger, "audience", [Gather("followers", tasks=4, by=("name",)), Gather("counts")])

    @line.step("fan-out", reads="urls")
    def fan_out(row: dict[str, Any], out: Emitted) -> None:
        for person in SHARED[row["url"]]:
            out.emit("followers", {"name": person})
        out.emit("strangers", {"name": row["url"]})

    @line.step("look-up", reads="strangers")
    def look_up(row: dict[str, Any], out: Emitted) -> None:
        out.emit("followers", {"name": row["name"]})

    workers = line.workers()
    for worker in workers:
        worker.work()
    for stream, name in (("followers", "distinct"), ("counts", "sum")):
        Stream(ledger, stream).subscribe(name)
    spout = StreamSpout(ledger, SpoutOptions("requests", "urls", "url", line="audience", group=1))
    roots = [spout.write(pa.table({"url": [url]}))[0] for url in sorted(SHARED)]
    workers[0].work()
    return str(roots[0].anchors(1)[0])


@contextmanager
def serve(url: str) -> Iterator[str]:
    """The service of a store: its address."""
    command = [
        sys.executable,
        "-c",
        "from acker.cli import main; main()",
        "serve",
        "--port",
        "0",
        "--url",
        url,
    ]
    environment = {**os.environ, "ACKER_ENVIRONMENT": "production"}
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if address := re.search(r"http://\S+", line):
                break
        else:
            sys.exit("the service has ended")
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield address[0].rstrip("/")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def shoot(browser: Browser, url: str, view: str, size: str, theme: str) -> None:
    """One picture."""
    width, height = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if THEMES[theme] == "dark" else "light",
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(url)
    settle(page)
    png = page.screenshot(full_page=view in WHOLE)
    blank = browser.new_page()
    webp = blank.evaluate(_TO_WEBP, base64.b64encode(png).decode())
    (DIRECTORY / f"{view}{size}{theme}.webp").write_bytes(base64.b64decode(webp))
    blank.close()
    context.close()


def settle(page: Page) -> None:
    """Waits until the view shows its data, and the charts are drawn."""
    page.wait_for_selector("[data-state=live]")
    expect(page.locator("body")).not_to_contain_text("Loading", timeout=30_000)
    page.wait_for_function(_NO_LINE_TO_COME)
    if page.locator(".charts").count():
        page.wait_for_selector("[data-connection=live]", state="attached")


if __name__ == "__main__":
    main(*sys.argv[1:])
