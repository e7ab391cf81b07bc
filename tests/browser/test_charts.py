"""The charts of a topology: marks on them."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.helpers.faces.browser import NewPage, World, wait_until_complete

pytestmark = pytest.mark.slow


def test_a_mark_stands_on_each_chart_with_its_text_by_pointer_and_keyboard(
    new_page: NewPage, world: World, axe: Callable[[Page], list[str]]
) -> None:
    page = new_page("/t/words")
    wait_until_complete(page)
    page.get_by_role("button", name="Set a mark…").click()
    dialog = page.get_by_role("dialog", name="Set a mark on the charts")
    assert axe(page) == []
    dialog.get_by_label("Text").fill("deploy <b>1.4.2</b>")
    page.keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    marks = page.get_by_role("region", name="Marks")
    marks.get_by_text(re.compile("marks? in these charts")).click()
    expect(marks.get_by_role("listitem").first).to_contain_text("deploy <b>1.4.2</b>, by 127.0.0.1")
    plots = page.get_by_role("slider")
    words = re.compile(r"deploy <b>1\.4\.2</b>, by")
    plots.nth(1).focus()
    # It is on the chart as soon as a point is as late as it.
    page.keyboard.press("Shift+ArrowLeft")
    expect(plots.nth(1)).to_have_attribute("aria-valuetext", words)
    expect(page.locator(".said")).to_have_count(5)  # the cursors of all charts move together
    expect(page.locator(".said").first).to_contain_text(words)
    page.keyboard.press("Home")
    expect(page.locator(".said")).to_have_count(0)
    page.get_by_role("link", name="All that is kept").click()
    expect(page.locator("tbody tr").first).to_contain_text("deploy <b>1.4.2</b>")
    page.get_by_label("Action").select_option("mark")
    expect(page.locator("tbody tr")).to_have_count(1)
