"""The box in which a record is looked for, by keyboard and on a phone."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from acker.inspect.operate.removal import remove
from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers.builders.kept_rows import fail, letters, lines, rows
from tests.helpers.faces.api import serving
from tests.helpers.faces.browser import HOSTILE, NewPage, World
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.slow

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def ask(page: Page, text: str) -> None:
    page.get_by_role("searchbox").fill(text)
    page.keyboard.press("Enter")


def replayed(ledger: Ledger) -> None:
    """Rows 0 and 1 whose second attempt has failed, too, and one that was acked then."""
    StreamSpout(ledger, SpoutOptions("lines", "lines", "id", attempts=2)).write(lines(3))
    fail(ledger, lambda _: True, "<b>malformed</b>")
    settler.settle(ledger)
    wait_until(lambda: len(rows(ledger)) == 3)  # the service settles, too, and may be in the middle of it
    fail(ledger, lambda row: row["id"] != 2, "no such shop " + "and no other either " * 12)
    settler.settle(ledger)
    wait_until(lambda: len(letters(ledger)) == 2)  # as above: the page of a record does not ask again


@pytest.mark.parametrize("options", [{"color_scheme": "light"}, {"color_scheme": "dark"}, PHONE])
def test_a_record_is_found_by_its_id_or_an_anchor_and_leads_to_its_attempts_and_its_dead_letter(
    new_page: NewPage, world: World, axe: Callable[[Page], list[str]], options: dict[str, object]
) -> None:
    ledger = world.ledger("finding", ackers=2, message_timeout=3600.0)
    try:
        replayed(ledger)
        page = new_page("/t/finding", **options)
        ask(page, "1")
        expect(page).to_have_url(re.compile(r"/t/finding/find\?id=1$"))
        rows = page.get_by_role("region", name="Attempts, spout lines").locator("tbody tr")
        expect(rows).to_have_count(2)
        expect(rows.first).to_contain_text("<b>malformed</b>")
        expect(rows.last).to_contain_text("no such shop")
        looked = page.get_by_role("status").filter(has_text="Looked at")  # another one says what is loaded
        expect(looked).to_have_text(re.compile(r"Looked at \d+ of \d+ trees"))
        assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]  # type: ignore[index]
        assert axe(page) == []
        anchor = rows.first.get_by_role("link").text_content()
        page.get_by_role("link", name=re.compile("@lines")).click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Dead letter")
        # The anchor of any of its trees leads to all of the record.
        ask(page, str(anchor))
        tree = page.get_by_role("region", name="Tree of this anchor")
        expect(tree).to_contain_text("failed")
        expect(rows).to_have_count(2)
        expect(page.get_by_text("Nothing is known of this message id")).to_be_visible()
        tree.get_by_role("link").click()
        # A tree's page has the attempts, too: a replay is a tree of its own.
        expect(rows.first).to_contain_text("this one")
        expect(rows.last.get_by_role("link")).to_be_visible()
        expect(page.get_by_role("region", name="Attempts", exact=True)).to_contain_text("Dead letter since")
        assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]  # type: ignore[index]
        assert axe(page) == []
        page.get_by_role("link", name="its attempts and dead letters").click()
        expect(rows).to_have_count(2)
        page.go_back()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Tree")
        page.goto(page.url.partition("/trees")[0] + "/trees?message_id=2")
        page.get_by_role("link", name="Find the record, whatever became of it").click()
        expect(rows).to_have_count(1)  # how its second attempt was acked is not kept
    finally:
        ledger.run(remove("finding", force=True))


def test_the_step_and_the_batch_that_failed_a_record_are_told_in_each_list(
    new_page: NewPage, world: World, axe: Callable[[Page], list[str]]
) -> None:
    ledger = world.ledger("steps", ackers=1, message_timeout=3600.0)
    try:
        StreamSpout(ledger, SpoutOptions("lines", "lines", "id", attempts=1)).write(lines(1))
        fail(ledger, lambda _: True, "no such shop", "price", 1234)
        settler.settle(ledger)
        wait_until(lambda: letters(ledger))  # the service settles, too
        page = new_page("/")
        for path in ("outcomes", "dead-letters?view=rows", "find?id=0"):
            page.goto(f"{world.address}/t/steps/{path}")
            for width in (1440, 390):
                page.set_viewport_size({"width": width, "height": 844})
                step = page.locator("tbody td[data-title=Step]")
                expect(step).to_have_text("price, batch 1,234")
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                assert axe(page) == []
        page.get_by_role("table").get_by_role("link").first.click()
        expect(page.get_by_role("region", name="History")).to_contain_text("by price, batch 1,234")
    finally:
        ledger.run(remove("steps", force=True))


def test_any_id_is_looked_for_as_it_is_and_does_nothing(new_page: NewPage, world: World) -> None:
    ledger = world.ledger("hostile", ackers=1, message_timeout=3600.0)
    try:
        ledger.track(ids.new_anchors(len(HOSTILE)), ids.new_ids(len(HOSTILE)), HOSTILE, spout="s")
        page = new_page("/t/hostile/find")
        expect(page.get_by_text("Enter a message id")).to_be_visible()
        rows = page.get_by_role("region", name="Attempts, spout s").locator("tbody tr")
        for text in (HOSTILE[0].decode(), "base64:/wBieXRlcw==", HOSTILE[2].decode(), "base64:"):
            ask(page, text)
            expect(page.get_by_role("searchbox")).to_have_value(text)
            expect(rows).to_have_count(1)
            expect(rows).to_contain_text("pending")
        assert page.evaluate("window.hacked") is None
        ledger.track(ids.new_anchors(1), ids.new_ids(1), [b"base64:/wA="], spout="s")
        ask(page, "base64:/wA=")  # bytes that nobody has, or a text
        expect(page.get_by_role("region", name="By message id")).to_have_count(2)
        expect(page.get_by_text("Nothing is known of this message id.")).to_be_visible()
        expect(rows).to_have_count(1)
        ask(page, "base64:?")
        expect(page.get_by_role("alert")).to_contain_text("message_id_base64")
    finally:
        ledger.run(remove("hostile", force=True))


ODD = (
    "a%2Fb", "../..", "?id=1&x#y", "+ %zz", "日本語🦀", "e\u0301", "\x01\x7f\u202e", "1e3", "null", "é" * 512,
)  # fmt: skip


def test_odd_ids_are_found_from_the_box_and_by_links(new_page: NewPage, world: World) -> None:
    path = "/of/acker"
    ledger = world.ledger("odd", ackers=1, message_timeout=3600.0)
    anchors = ids.new_anchors(len(ODD) + 1)
    own = str(anchors[0])
    try:
        ledger.track(anchors, ids.new_ids(len(anchors)), [*ODD, own], spout="s")
        with serving(world.url, root_path=path, log_level="error") as address:
            page = new_page(f"{path}/t/odd/find", address)
            rows = page.get_by_role("region", name="Attempts, spout s").locator("tbody tr")
            for anchor, text in zip(anchors.tolist(), ODD, strict=False):
                ask(page, text)
                expect(rows).to_have_count(1)
                expect(rows).to_contain_text(str(anchor))
                expect(page.get_by_role("searchbox")).to_have_value(text)
                page.reload()
                expect(rows).to_contain_text(str(anchor))
                rows.get_by_role("link").click()
                page.get_by_role("link", name="its attempts and dead letters").click()
                expect(rows).to_contain_text(str(anchor))
                assert page.url.startswith(f"{address}{path}/t/odd/find?id=")
            # The id of one record is the anchor of another: both are shown, each under its heading.
            ask(page, own)
            expect(page.get_by_role("region", name="Tree of this anchor")).to_contain_text("a%2Fb")
            expect(page.get_by_role("region", name="By message id")).to_have_count(2)
            expect(rows).to_have_count(2)
            expect(rows.last).to_contain_text(str(anchors[-1]))
            # What is too long to be an id is refused, whatever of it was pasted.
            ask(page, "x" * 65_536)
            expect(page.get_by_role("alert")).to_contain_text("1024")
            assert page.evaluate("document.documentElement.scrollWidth") <= 1440
    finally:
        ledger.run(remove("odd", force=True))


def test_an_id_of_many_attempts_is_shown_piece_by_piece(new_page: NewPage, world: World) -> None:
    ledger = world.ledger("many", ackers=1, message_timeout=3600.0)
    try:
        anchors = ids.new_anchors(250)
        ledger.track(anchors, ids.new_ids(250), ["m"] * 250, spout="s")
        ledger.fail(anchors[:50], "bad")
        page = new_page("/t/many/find?id=m")
        rows = page.get_by_role("region", name="Attempts, spout s").locator("tbody tr")
        expect(rows).to_have_count(100)
        page.get_by_role("button", name="Search on").click()
        expect(rows).to_have_count(200)
        page.get_by_role("button", name="Search on").click()
        expect(rows).to_have_count(250)
        expect(page.get_by_role("button", name="Search on")).to_have_count(0)
        expect(rows.filter(has_text="bad")).to_have_count(50)
    finally:
        ledger.run(remove("many", force=True))


def test_what_the_service_keeps_for_people_is_filtered_by_message_id(new_page: NewPage, world: World) -> None:
    ledger = world.ledger("named", ackers=1, message_timeout=3600.0)
    try:
        anchors = ids.new_anchors(3)
        ledger.track(anchors, ids.new_ids(3), ["a", "b", "ab"], spout="s")
        ledger.fail(anchors, "bad")
        page = new_page("/t/named/outcomes")
        rows = page.locator("tbody tr")
        expect(rows).to_have_count(3)
        page.get_by_label("Message id").fill("b")
        page.keyboard.press("Enter")
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text(str(anchors[1]))
    finally:
        ledger.run(remove("named", force=True))
