"""An incident among 200 topologies: it is read from the first screen, by eye and by keyboard, in any window.

Every page is looked at in one browser: axe finds nothing, nothing is wider than the window, and no two texts
lie on each other.
"""

import re
import time
from collections.abc import Iterator
from datetime import datetime

import pytest
from playwright.sync_api import Locator, Page, expect

from acker import Topology
from acker.embedded import EmbeddedServer
from acker.inspect.operate.removal import remove
from examples import incident
from examples.incident import ILL, MUTED, TOPOLOGIES, Ill
from tests.helpers.builders.counting import counting
from tests.helpers.builders.line_job import Job
from tests.helpers.faces import patient
from tests.helpers.faces.api import serving
from tests.helpers.faces.browser import LABELS, Axe, NewPage, tab_to

pytestmark = pytest.mark.slow

WELL = TOPOLOGIES - len(ILL) - len(MUTED)
WIDTHS = (390, 768, 1440, 2560)
BETWEEN = (320, 480, 620, 701, 900, 1080, 1200, 1680, 1901, 2200)
"""Further widths, at which a layout changes."""
PAGES = {
    "topologies": "/",
    "a chosen state": "/?state=look,muted",
    "failing": "/t/payments",
    "expiring": "/t/billing",
    "behind": "/t/search",
    "muted": "/t/reports",
    "paused": "/t/backfill?node=spout:rows",
    "well": "/t/lisbon-orders",
    "trees": "/t/imports/trees",
    "trees whose clock stands still": "/t/search/trees",
    "a tree": "/t/search/trees/{tree}",
    "in streams": "/t/search/stuck",
    "lines": "/t/search/lines",
    "failures": "/t/payments/outcomes",
    "causes": "/t/payments/outcomes?view=causes",
    "dead letters": "/t/letters/dead-letters",
    "rows of dead letters": "/t/letters/dead-letters?view=rows",
    "activity": "/t/backfill/activity",
    "a record": "/t/search/find?id=document-7",
    "a record of all": "/find?id=document-7",
    "line": "/t/calls/lines",
    "a request": "/t/calls/lines/{request}",
    "functions": "/functions",
    "a function": "/functions/count",
    "a call": "/functions/count/{call}",
    "nothing": "/nothing",
}
ALIKE = "tbody tr:nth-child(n+9)"
"""Rows that have nothing that those before them have not."""
CROSSING = """async () => {
    const labels = await window.faults();
    const edges = new Map();
    const within = (element) => {  // what of it is seen
        if (element === null) return { left: -Infinity, top: -Infinity, right: Infinity, bottom: Infinity };
        if (!edges.has(element)) {
            const seen = within(element.parentElement);
            const clips = getComputedStyle(element).overflow !== "visible";
            const edge = clips ? element.getBoundingClientRect() : seen;
            edges.set(element, {
                left: Math.max(seen.left, edge.left), right: Math.min(seen.right, edge.right),
                top: Math.max(seen.top, edge.top), bottom: Math.min(seen.bottom, edge.bottom),
            });
        }
        return edges.get(element);
    };
    const shown = [];
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
        if (!node.textContent.trim()) continue;
        if (!node.parentElement.checkVisibility({ visibilityProperty: true })) continue;
        if (node.parentElement.closest(".hidden, .said, .skip, option, title")) continue;
        const range = document.createRange();
        range.selectNodeContents(node);
        const edge = within(node.parentElement);
        for (const { left, top, right, bottom } of range.getClientRects()) {
            const box = {
                node, text: node.textContent.trim(),
                left: Math.max(left, edge.left), right: Math.min(right, edge.right),
                top: Math.max(top + 3, edge.top), bottom: Math.min(bottom - 3, edge.bottom),
            };
            if (box.right - box.left > 1 && box.bottom > box.top) shown.push(box);
        }
    }
    shown.sort((one, other) => one.top - other.top);
    const found = shown.filter(({ right }) => right > innerWidth + 1).map(({ text }) => `outside: ${text}`);
    shown.forEach((one, index) => {
        for (const other of shown.slice(index + 1)) {
            if (other.top >= one.bottom) break;
            const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
            if (across > 1 && one.node !== other.node) found.push(`${one.text} | ${other.text}`);
        }
    });
    if (document.documentElement.scrollWidth > innerWidth) found.push("the page is wider than the window");
    found.push(...labels);
    for (const table of innerWidth <= 700 ? document.querySelectorAll(".table") : [])
        if (table.scrollWidth > table.clientWidth) found.push(`${table.ariaLabel} is wider than a phone`);
    return found.slice(0, 5);
}"""


@pytest.fixture(scope="module")
def url(dashboard: None) -> Iterator[str]:
    """The store of an incident."""
    with EmbeddedServer(append_only=False) as server:
        incident.make(server.url)
        yield server.url


@pytest.fixture(scope="module")
def address(url: str) -> Iterator[str]:
    """The service of that store."""
    with serving(url, environment="production", writes_per_second=1000, log_level="error") as address:
        yield address


def since(place: Locator) -> float:
    shown = place.locator("time").first.get_attribute("datetime")
    return datetime.fromisoformat(str(shown)).timestamp()


def test_the_first_screen_and_each_page_say_which_what_where_and_since_when(
    new_page: NewPage, address: str
) -> None:
    page = new_page("/", address)
    expect(page.locator(".counts")).to_have_text(f"4 critical, 5 need a look, 2 muted, {WELL} well")
    ill = page.locator("article:is(.critical, .look)")
    assert ill.evaluate_all("all => all.map(one => one.ariaLabel)") == [one.topology for one in ILL]
    expect(ill.last).to_be_in_viewport(ratio=1)
    begun = {}
    for one in ILL:
        row = page.get_by_role("article", name=one.topology, exact=True)
        expect(row).to_contain_text(one.says)
        begun[one.topology] = since(row)
        if one.age is not None:
            assert abs(time.time() - one.age - begun[one.topology]) < 120
    for name, why in zip(MUTED, ("Muted by ann until ", "Paused by bob"), strict=True):
        expect(page.get_by_role("article", name=name, exact=True)).to_contain_text(why)
    for one in ILL:
        page.get_by_role("article", name=one.topology, exact=True).get_by_role("link").first.click()
        read_the_page(page, one, begun[one.topology])
        page.get_by_role("link", name="acker", exact=True).click()


def read_the_page(page: Page, ill: Ill, begun: float) -> None:
    """The page begins with the trouble, marks its place, and its button leads to the cause."""
    headline = page.locator(f".headline[data-trouble={ill.code}]")
    expect(headline).to_contain_text(ill.says)
    expect(headline).to_contain_text(re.compile(r"\. Since .*, for \d"))
    assert abs(since(headline) - begun) < 2
    expect(page.locator(".worst-line")).to_have_attribute("data-worst", ill.place)
    if ill.place:
        kind, _, name = ill.place.partition(":")
        expect(page.locator(".worst-line")).to_have_text(f"▲ At {kind} {name}")
        expect(page.locator(".part.worst")).to_contain_text(name)
    if ill.cause:
        headline.locator(".press").click()
        expect(page.locator("td").filter(has_text=ill.cause).first).to_be_visible()


@pytest.fixture
def places(url: str, address: str) -> Iterator[dict[str, str]]:
    """Names of a tree, a call, and a request of a line that are under way, as in the paths of `PAGES`."""
    [tree, *_] = patient.get(f"{address}/api/v1/topologies/search/trees").json()["trees"]
    with Topology(url, "calls", ackers=1, message_timeout=3600.0) as topology:
        counting().register(topology)
        call = topology.drpc("count").begin(3)
        call.begun.result()
        job = Job(topology.ledger)
        roots = job.ask(3)
        job.workers["fan"].work()
        yield {"tree": tree["anchor"], "call": call.request, "request": str(roots.anchors(1)[0])}
        topology.ledger.run(remove("calls", force=True))


def test_each_page_is_well_to_read_in_any_window(
    new_page: NewPage, address: str, axe: Axe, places: dict[str, str]
) -> None:
    page = new_page("/", address)
    page.add_init_script(LABELS)
    for name, path in PAGES.items():
        page.emulate_media(color_scheme="light")
        page.goto(address + path.format(**places))
        expect(page.locator("h1")).to_be_visible()
        expect(page.locator("main")).not_to_contain_text("Loading")
        for width in (*WIDTHS, *BETWEEN):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate(CROSSING) == [], (name, width)
            if width in WIDTHS:
                assert axe(page, beyond=ALIKE) == [], (name, width)
                for tab in page.locator("header nav .active").all():
                    expect(tab).to_be_in_viewport(ratio=0.9)
        page.emulate_media(color_scheme="dark")  # which changes colours only
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert axe(page, "color-contrast", beyond=ALIKE) == [], (name, width)


def test_an_incident_is_worked_on_by_keyboard_only(new_page: NewPage, address: str, axe: Axe) -> None:
    page = new_page("/", address)
    expect(page.get_by_role("article")).not_to_have_count(0)
    tab_to(page, page.get_by_role("group", name="State").get_by_role("button", name="Critical"))
    page.keyboard.press("Space")
    expect(page.get_by_role("article")).to_have_count(4)
    tab_to(page, page.get_by_role("article", name="imports").get_by_role("link", name="Trees in flight"))
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(50)
    tab_to(page, page.get_by_role("button", name="Select all that match"))
    page.keyboard.press("Enter")
    expect(page.get_by_text("all 100 trees that match selected; updates wait")).to_be_visible()
    tab_to(page, page.get_by_role("button", name="Fail…"), "Shift+Tab")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Fail 100 trees?")
    assert axe(page) == []
    tab_to(page, dialog.get_by_label("Type 100 to confirm"))
    page.keyboard.type("100")
    page.keyboard.press("Enter")
    expect(page.get_by_text("100 trees failed.")).to_be_visible()
    page.keyboard.type("ga")
    expect(page.locator("tbody tr").first).to_contain_text("fail")
    page.keyboard.type("gt")
    expect(page.get_by_role("heading", level=1)).to_have_text("Topologies")
