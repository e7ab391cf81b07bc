"""Takes the screenshots of docs/ from a demo that runs: each view, light and dark, wide and as on a phone.

    uv run python docs/screenshots.py                                    starts a demo, and ends it afterwards
    uv run python docs/screenshots.py http://127.0.0.1:8080 TOPOLOGY     takes them of a service that runs

A service with tokens gets the one of ACKER_TOKEN. It needs a Chromium on this machine.
"""

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

DIRECTORY = Path(__file__).parent / "screenshots"
VIEWS = {
    "overview": "/",
    "charts": "/t/{topology}",
    "trees": "/t/{topology}/trees",
    "failures": "/t/{topology}/outcomes",
    "dead-letters": "/t/{topology}/dead-letters",
}
SIZES = {"": (1440, 900), "-phone": (390, 844)}
THEMES = {"": "light", "-dark": "dark"}
WHOLE = ("charts",)
"""Views that are shown to their end: the others are lists."""
DEMO = ["--lines", "0", "--max-spout-pending", "8000", "--poison-every", "1000"]
"""Enough text to last, and so little in flight that it flows evenly."""
SECONDS = 120
"""How long it flows before the pictures are taken."""
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


def main(address: str = "", topology: str = "") -> None:
    """Writes a picture of each view, in each size and theme."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("no Chromium on PATH: apt-get install chromium")
    if not address:
        with demo() as (address, topology):
            time.sleep(SECONDS)
            main(address, topology)
        return
    DIRECTORY.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        for view, path in VIEWS.items():
            for size in SIZES:
                for theme in THEMES:
                    shoot(browser, address + path.format(topology=topology), view, size, theme)
        browser.close()


@contextmanager
def demo() -> Iterator[tuple[str, str]]:
    """A demo whose lines flow: the address of its service, and its topology."""
    command = [sys.executable, "-c", "from acker.cli import main; main()", "demo", *DEMO]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        address = ""
        for line in process.stderr:
            sys.stderr.write(line)
            if found := re.search(r"dashboard (http://\S+)", line):
                address = found[1]
            if re.search(r" acked [1-9]", line):
                break
        else:
            sys.exit("the demo has ended")
        # It must not have to wait for anyone to read the rest.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        with urllib.request.urlopen(f"{address}/api/v1/topologies") as answer:
            yield address, json.load(answer)["topologies"][0]["topology"]
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
    if token := os.environ.get("ACKER_TOKEN"):
        context.add_init_script(f"sessionStorage.setItem('acker-token', {token!r})")
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
    page.wait_for_function("!document.body.innerText.includes('Loading')")
    if page.locator(".charts").count():
        page.wait_for_selector("[data-connection=live]", state="attached")


if __name__ == "__main__":
    main(*sys.argv[1:])
