"""The head of every page: which store and environment, as whom, and a record among all topologies."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.helpers.builders.ledgers import Trees
from tests.helpers.faces.api import OPERATE, serving
from tests.helpers.faces.browser import NewPage, World, bury

pytestmark = pytest.mark.slow


def test_it_tells_store_environment_version_and_author_and_is_gone_through_by_keys(
    new_page: NewPage, world: World, axe: Callable[[Page], list[str]]
) -> None:
    with serving(
        world.url, tokens=f"ann=operate:{OPERATE}", environment="production", log_level="error"
    ) as address:
        page = new_page("/t/still/trees", address)
        page.get_by_label("Token").fill(OPERATE)
        page.keyboard.press("Enter")
        expect(page.locator("tbody tr")).to_have_count(50)
        expect(page.locator(".environment")).to_have_text("production")
        about = page.locator(".about")
        expect(about).to_contain_text(f"Store {world.url}")
        expect(about).to_contain_text(re.compile(r"acker \S+as ann, scope operate$"))
        for width in (320, 390, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            for theme in ("light", "dark"):
                page.emulate_media(color_scheme=theme)
                assert axe(page) == [], (width, theme)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        page.keyboard.press("/")
        box = page.get_by_role("searchbox")
        expect(box).to_be_focused()
        page.keyboard.type("g t?/")  # a field takes what is typed into it
        expect(box).to_have_value("g t?/")
        page.get_by_role("main").focus()
        page.keyboard.press("?")
        dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
        expect(dialog).to_contain_text("Dead letters of the topology")
        assert axe(page) == []
        page.keyboard.type("gt")
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        page.keyboard.type("gd")
        expect(page).to_have_url(re.compile("/t/still/dead-letters$"))
        page.keyboard.type("gt")
        expect(page.get_by_role("heading", level=1)).to_have_text("Topologies")
        page.keyboard.press("?")
        dialog.get_by_label("Shortcuts of one key").uncheck()
        dialog.get_by_role("button", name="Close").click()
        page.keyboard.press("/")
        expect(page.get_by_role("searchbox").first).not_to_be_focused()


def test_the_tab_tells_of_a_trouble_that_comes_while_nobody_looks(new_page: NewPage, world: World) -> None:
    ledger = world.ledger("unseen", ackers=1)
    pages = [new_page("/?name=unseen"), new_page("/t/unseen/trees")]
    expect(pages[0]).to_have_title("1 well · acker")
    expect(pages[1]).to_have_title("unseen · acker")
    for page in pages:
        page.evaluate(
            """() => {
                for (const [name, value] of [["hidden", true], ["visibilityState", "hidden"]])
                    Object.defineProperty(document, name, { value });
                document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
            }"""
        )
    bury(ledger)
    expect(pages[0]).to_have_title("1 critical · acker")
    expect(pages[1]).to_have_title("unseen: critical · acker")


def test_a_record_is_found_among_all_topologies(
    new_page: NewPage, world: World, axe: Callable[[Page], list[str]]
) -> None:
    trees = Trees(3)
    for name in ("lost", "twin"):  # a message id of no other test, in two topologies
        other = Trees(1)
        ledger = world.ledger(name, ackers=1, message_timeout=3600.0)
        ledger.track(other.anchors, other.values, [b"order lost"], spout="lines")
    anchor = trees.track(world.ledger("lost"), "lines").anchors[1]
    page = new_page("/")
    box = page.get_by_role("searchbox", name="Find a record")
    box.fill(str(anchor))
    box.press("Enter")
    found = page.locator(".finds li")
    expect(page.get_by_role("status").filter(has_text="found in 1.")).to_be_visible()
    expect(found).to_have_count(1)
    expect(found).to_contain_text("pending")
    assert axe(page) == []
    box.fill("order lost")
    box.press("Enter")
    expect(page.get_by_role("status").filter(has_text="found in 2.")).to_be_visible()
    found.get_by_role("link", name="lost").click()
    expect(page).to_have_url(re.compile(r"/t/lost/find\?id=order\+lost$"))
    page.get_by_role("link", name="Look in all topologies").click()
    expect(found).to_have_count(2)
    box.fill("no such id")
    box.press("Enter")
    expect(page.get_by_text("No topology knows it.")).to_be_visible()
