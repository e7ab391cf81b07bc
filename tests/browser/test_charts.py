"""The charts of a topology: marks on them, and their range."""

import re
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
import redis
from playwright.sync_api import Page, expect

from acker.inspect.operate.removal import remove
from acker.inspect.topology import history
from acker.store import keys
from tests.helpers.faces.browser import LABELS, NewPage, World, wait_until_complete
from tests.helpers.servers.servers import wait_until

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


@pytest.fixture
def remembered(world: World) -> Iterator[str]:
    """Nine days of history: acks after three minutes, and one in eleven after more than 1,000,000 ms."""
    ledger = world.ledger("remembered", ackers=1, message_timeout=3600.0)
    columns = dict.fromkeys(history.COLUMNS, 0.0)
    with redis.Redis.from_url(world.url) as raw:
        now = raw.time()[0]
        pipe = raw.pipeline()
        for number in range(9 * 144):
            counts = columns | {"tracked": 60.0 * number, "acked": 60.0 * number, "nursery": 12.0}
            packed = history.pack([*counts.values()], {140: 60 * number, 161: 6 * number})
            at = 1000 * (now - 600 * (9 * 144 - number))
            pipe.xadd(keys.history("remembered", 600), {"reading": packed}, id=f"{at}-0")
        pipe.execute()
    yield "remembered"
    ledger.run(remove("remembered", force=True))


def test_any_range_is_shown_beside_the_same_hours_of_a_week_ago(
    new_page: NewPage, remembered: str, axe: Callable[[Page], list[str]]
) -> None:
    page = new_page(f"/t/{remembered}?window=7d")
    expect(page.locator(".chart canvas")).to_have_count(5)
    page.get_by_label("Compare with").select_option("day")
    expect(page).to_have_url(re.compile("window=7d&compare=day"))
    plots, times = page.get_by_role("slider"), page.locator(".chart time")
    plots.first.focus()
    page.keyboard.press("Home")
    for _ in range(3):
        page.keyboard.press("PageDown")
    wait_until(lambda: len(set(times.all_text_contents())) == 1)
    pale = page.locator(".chart li", has_text=", a day ago").locator("b")
    expect(pale).to_have_text(["0.1", "12", "0", re.compile(" min "), "0"])
    page.get_by_role("button", name="1 day").click()
    expect(page).to_have_url(re.compile("window=1d"))
    # Each label of the axis is whole, however long.
    latency = page.locator(".chart", has_text="Complete latency").locator(".u-over")
    other = page.locator(".chart", has_text="Expirations").locator(".u-over")
    assert latency.evaluate("one => one.offsetLeft") > other.evaluate("one => one.offsetLeft")
    assert axe(page) == []
    box = plots.first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 60, box["y"] + 60, steps=5)
    page.mouse.up()
    expect(page).to_have_url(re.compile("until="))
    [name] = parse_qs(urlsplit(page.url).query)["window"]
    assert re.fullmatch(r"[0-9]+[smh]", name)
    expect(page.get_by_text(re.compile(r"[smh], until "))).to_be_visible()
    page.get_by_role("button", name="Earlier").click()
    page.get_by_role("button", name="Later").click()
    page.go_back()
    page.go_back()
    page.go_back()
    expect(page).to_have_url(re.compile("compare=day&window=1d$|window=1d&compare=day$"))
    page.get_by_role("button", name="Earlier").click()
    expect(page.locator(".totals div", has_text="tracked").locator("dd")).to_have_text(
        re.compile(r"8,[56]\d\d")
    )
    page.get_by_role("button", name="Now").click()
    expect(page.get_by_role("button", name="Later")).to_be_disabled()


def test_no_label_of_a_chart_is_cut_in_any_window(new_page: NewPage, world: World, remembered: str) -> None:
    page = new_page()
    page.add_init_script(LABELS)
    for window in ("12h", "7d", "all"):
        page.goto(f"{world.address}/t/{remembered}?window={window}")
        expect(page.locator(".chart canvas")).to_have_count(5)
        for width in (320, 390, 701, 768, 1081, 1440, 1901, 2560):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("faults()") == [], (window, width)
