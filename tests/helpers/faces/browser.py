"""Pages in Chromium, for tests of the dashboard."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from playwright.sync_api import Locator, Page, expect

from acker.ledger.client import Ledger, open_ledger
from acker.store.client import Store
from acker.streams import StreamReader
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers.servers.servers import wait_until

HOSTILE = (b"<script>window.hacked=1</script>", b"\xff\x00bytes", "gpj\u202eexe.png".encode(), b"", b" a  b")


LABELS = """(() => {
    const drawn = new WeakMap();
    const { fillText, clearRect } = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.clearRect = function (...box) {
        drawn.set(this.canvas, []);
        return clearRect.apply(this, box);
    };
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
        const box = this.measureText(text);
        const at = this.getTransform().transformPoint({ x, y });
        drawn.get(this.canvas).push({
            text, left: at.x - box.actualBoundingBoxLeft, right: at.x + box.actualBoundingBoxRight,
            top: at.y - box.actualBoundingBoxAscent, bottom: at.y + box.actualBoundingBoxDescent,
        });
        return fillText.call(this, text, x, y, ...rest);
    };
    const faults = (canvas) => {
        const shown = drawn.get(canvas) ?? [];
        const { width, height } = canvas;
        const frame = canvas.closest(".plot").getBoundingClientRect();
        const outside = ({ left, right, top, bottom }) =>
            left < 0 || right > width || top < 0 || bottom > height;
        const crossed = (one, index) => shown.slice(index + 1).some((other) =>
            Math.min(one.right, other.right) > Math.max(one.left, other.left)
            && Math.min(one.bottom, other.bottom) > Math.max(one.top, other.top));
        return [
            ...(canvas.getBoundingClientRect().right > frame.right + 1 ? ["a chart is cut"] : []),
            ...(shown.some(({ text }) => text) ? [] : ["a chart without labels"]),
            ...shown.filter(outside).map(({ text }) => `cut: ${text}`),
            ...shown.filter(crossed).map(({ text }) => `crossed: ${text}`),
        ];
    };
    window.faults = async () => {
        for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);  // they are drawn
        return [...document.querySelectorAll(".plot canvas")].flatMap(faults);
    };
})()"""
"""A script of a page that notes the labels of charts; `faults()` lists cut and crossing ones."""

NewPage = Callable[..., Page]
Axe = Callable[..., list[str]]


@dataclass
class World:
    """A store with topologies of every kind, and a service of it."""

    url: str
    address: str

    def ledger(self, name: str, **config: object) -> Ledger:
        """The ledger of a topology, made where there is none."""
        return open_ledger(Store(self.url), name, **config)  # type: ignore[arg-type]


def bury(ledger: Ledger, reason: str = "<b>bad</b>") -> None:
    """Makes three dead letters."""
    spout = StreamSpout(ledger, SpoutOptions("lines", "lines", "id", attempts=1))
    spout.write(pa.table({"id": [1, 2, 3], "text": ["one", "<b>two</b>", None]}))
    reader = StreamReader(ledger, "lines")
    ledger.fail([int(str(row["_acker"])) for row in reader.rows()], reason)
    settler.settle(ledger)
    reader.ack_all()


def tab_to(page: Page, target: Locator, key: str = "Tab") -> None:
    """Presses a key until the target has the focus; it is seen where the focus is."""

    def tabbed() -> bool:
        page.keyboard.press(key)
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        return bool(target.evaluate("element => element === document.activeElement"))

    expect(target).to_be_visible()
    wait_until(tabbed, interval=0)


def number(text: str | None) -> int:
    """A number as a view shows it."""
    return int((text or "").replace(",", ""))


def total(page: Page, name: str) -> int:
    """One of a topology's totals, as its view shows it."""
    return number(page.locator(".totals div", has_text=name).locator("dd").text_content())


def wait_until_complete(page: Page) -> None:
    """Waits until a topology's view shows all that it asks for at first, in whichever order it comes."""
    expect(page.locator(".summary")).to_be_visible()
    expect(page.locator(":is(.drawing, .parts-list) .part")).not_to_have_count(0)
    expect(page.locator(".chart canvas")).to_have_count(5)
    expect(page.locator("[data-connection=live]")).to_be_attached()
