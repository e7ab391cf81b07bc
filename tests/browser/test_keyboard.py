"""An operator's actions by keyboard alone: the focus is always seen, and goes back to where it came from."""

import re

import pyarrow as pa
import pytest
from playwright.sync_api import Locator, Page, Route, expect

from acker.streams import StreamReader
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers.builders.ledgers import Trees
from tests.helpers.faces.browser import NewPage, World, tab_to

pytestmark = pytest.mark.slow

LETTERS = 2500
"""Dead letters of one cause: more than one piece of work has."""


def pressed(page: Page, target: Locator, key: str = "Tab") -> None:
    """Goes to the target by Tab, or by Shift and Tab, and presses Enter."""
    tab_to(page, target, key)
    page.keyboard.press("Enter")


def test_all_letters_of_a_filter_are_replayed_until_stopped_and_discarded(
    new_page: NewPage, world: World
) -> None:
    ledger = world.ledger("heap", ackers=1, message_timeout=3600.0)
    spout = StreamSpout(ledger, SpoutOptions("mails", "mails", "id", attempts=1))
    spout.write(pa.table({"id": list(range(LETTERS + 2))}))
    reader = StreamReader(ledger, "mails")
    anchors = [int(str(row["_acker"])) for row in reader.rows()]
    ledger.fail(anchors[:2], "no such address")
    ledger.fail(anchors[2:], "the server is full")
    settler.settle(ledger)
    reader.ack_all()
    page = new_page("/t/heap/dead-letters?view=rows")
    rows, dialog = page.locator("tbody tr"), page.get_by_role("dialog")
    expect(rows).to_have_count(50)
    tab_to(page, page.get_by_label("Reason"))
    page.keyboard.type("full")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("reason=full"))
    pressed(page, page.get_by_role("button", name="Select all that match"))
    expect(page.get_by_text("all 2,500 dead letters that match selected; updates wait")).to_be_visible()
    expect(page.get_by_role("button", name="Select none")).to_be_focused()
    replay = page.get_by_role("button", name="Replay…")
    pressed(page, replay, "Shift+Tab")
    expect(dialog).to_contain_text("Replay 2,500 dead letters?")
    page.keyboard.press("Escape")
    expect(replay).to_be_focused()
    page.keyboard.press("Enter")
    held: list[Route] = []

    def hold(route: Route) -> None:
        """The first piece goes on, the second waits for the test."""
        held.append(route)
        if len(held) != 2:
            route.continue_()

    page.route("**/dead-letters/replay", hold)
    pressed(page, dialog.get_by_role("button", name="Replay"))
    expect(dialog).to_contain_text(re.compile(r"\d of 2,500 done so far"))
    expect(dialog.get_by_role("progressbar")).to_be_visible()
    pressed(page, dialog.get_by_role("button", name="Stop"))
    expect(dialog).to_contain_text("Stopping")
    held[1].continue_()
    expect(page.get_by_text(re.compile("rows will be tried again, and then it was stopped"))).to_be_visible()
    expect(page.get_by_role("main")).to_be_focused()  # nothing is selected now
    page.unroute("**/dead-letters/replay")

    pressed(page, page.get_by_role("button", name="Select all that match"))
    selected = page.get_by_text(re.compile("all .* dead letters that match selected"))
    left = re.findall(r"all ([\d,]+) dead", selected.text_content() or "")[0]
    assert 0 < int(left.replace(",", "")) < LETTERS
    pressed(page, page.get_by_role("button", name="Discard…"), "Shift+Tab")
    expect(dialog.get_by_label(re.compile("^Type [0-9]+ to confirm"))).to_be_focused()
    page.keyboard.type(left)  # as the title writes it
    page.keyboard.press("Enter")
    expect(page.get_by_text(f"{left} rows discarded.")).to_be_visible()
    pressed(page, page.get_by_role("button", name="Clear"))
    expect(rows).to_have_count(2)


def test_a_tree_is_chosen_and_failed(new_page: NewPage, world: World) -> None:
    ledger = world.ledger("keys", ackers=1, message_timeout=3600.0)
    Trees(3).track(ledger, "rows")
    page = new_page("/t/keys/trees")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    page.keyboard.press("Enter")
    box = page.locator("tbody").get_by_role("checkbox").first
    tab_to(page, box)
    page.keyboard.press("Space")
    expect(box).to_be_checked()
    pressed(page, page.get_by_role("button", name="Fail…"), "Shift+Tab")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_text("1 tree failed.")).to_be_visible()
    assert ledger.counters()["failed"] == 1


def test_a_spout_is_paused_and_resumed_and_a_topology_removed(new_page: NewPage, world: World) -> None:
    Trees(1).track(world.ledger("paced", ackers=1, message_timeout=3600.0), "rows")
    page = new_page("/t/paced?node=spout:rows")
    dialog = page.get_by_role("dialog")
    pause = page.get_by_role("button", name="Pause spout…")
    pressed(page, pause)
    expect(dialog.get_by_label("Reason")).to_be_focused()
    page.keyboard.type("after the sale")
    page.keyboard.press("Enter")
    expect(page.get_by_text("It is paused.")).to_be_visible()
    expect(page.locator(".paused").first).to_contain_text("after the sale")
    resume = page.get_by_role("button", name="Resume spout…")
    expect(resume).to_be_focused()
    page.keyboard.press("Enter")
    pressed(page, dialog.get_by_role("button", name="Resume spout"))
    expect(page.get_by_text("It goes on.")).to_be_visible()
    expect(pause).to_be_focused()
    pressed(page, page.get_by_role("button", name="Remove topology…"))
    expect(dialog.get_by_label("Type paced to confirm")).to_be_focused()
    page.keyboard.type("paced")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Topologies")
    expect(page.get_by_role("main")).to_be_focused()
    expect(page.get_by_role("article", name="paced", exact=True)).to_have_count(0)
