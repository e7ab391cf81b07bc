"""The views over a real service with real traffic."""

import re
from collections.abc import Callable

import numpy as np
import redis
from playwright.sync_api import Page, expect

from acker.inspect.operate.removal import remove
from acker.ledger import ids
from acker.ledger.calls import traces as of_ledger
from acker.ledger.steps import held, step_totals
from acker.store import keys
from acker.streams import Stream
from acker.streams.log import holders
from tests.helpers.builders.ledgers import Trees
from tests.helpers.builders.streaming import emit, take
from tests.helpers.faces.browser import (
    HOSTILE,
    Axe,
    NewPage,
    World,
    bury,
    number,
    total,
    wait_until_complete,
)
from tests.helpers.servers.servers import wait_until


def test_the_overview_has_a_line_for_each_topology_the_ill_ones_first(new_page: NewPage) -> None:
    page = new_page("/")
    letters = page.get_by_role("article", name="letters", exact=True)
    expect(letters).to_contain_text("3 of 3 trees failed so far, 100%. And 1 more.")
    expect(letters.locator("time")).to_have_text(re.compile(r"^for \d"))
    still = page.get_by_role("article", name="still", exact=True)
    expect(still).to_contain_text("healthy")
    names = page.get_by_role("article").evaluate_all("all => all.map(one => one.ariaLabel)")
    assert names.index("letters") < names.index("still")
    expect(page).to_have_title(re.compile(r"^\d+ critical, .*\d+ well · acker$"))
    expect(page.locator("link[rel=icon]")).to_have_attribute("href", re.compile(r"icon-critical\.svg$"))
    page.get_by_role("group", name="State").get_by_role("button", name="Well").click()
    expect(letters).to_have_count(0)
    expect(page).to_have_url(re.compile(r"\?state=well$"))
    page.get_by_label("Name").fill("nothing")
    expect(page.get_by_text("No topology is like that.")).to_be_visible()
    page.goto(page.url.partition("?")[0] + "?name=ette")
    expect(page.get_by_role("article")).to_have_count(1)
    letters.get_by_role("link", name="Failures").click()
    expect(page).to_have_url(re.compile(r"/t/letters/outcomes\?status=failed$"))
    expect(page).to_have_title("letters: critical · acker")
    expect(page.locator("link[rel=icon]")).to_have_attribute("href", re.compile(r"icon-critical\.svg$"))
    page.goto(page.url.partition("/t/")[0])
    still = page.get_by_role("article", name="still")
    expect(still.locator(".figures div", has_text="in flight").locator("dd")).to_have_text(re.compile(r"\d+"))
    words = page.get_by_role("article", name="words")
    # Figures change while one looks, without a reload.
    failed = words.locator(".figures div", has_text="failed").locator("dd")
    first = number(failed.text_content())
    wait_until(lambda: number(failed.text_content()) > first)
    words.get_by_role("link", name="words").click()
    expect(page).to_have_url(re.compile(r"/t/words$"))
    expect(page.get_by_role("heading", level=1)).to_have_text("words")


def test_a_topology_that_cannot_be_read_has_a_card_that_says_why(
    new_page: NewPage, world: World, axe: Callable[[Page], list[str]]
) -> None:
    config = keys.config("broken")
    with redis.Redis.from_url(world.url) as raw:
        world.ledger("broken", ackers=1)
        raw.hset(config, "ackers", "<b>many</b>")
        try:
            page = new_page("/")
            card = page.get_by_role("article", name="broken", exact=True)
            expect(card).to_contain_text("cannot be read")
            expect(card).to_contain_text("'<b>many</b>'")
            expect(page.get_by_role("article", name="still")).to_contain_text("healthy")
            expect(page.get_by_role("article").first).to_have_accessible_name("broken")
            assert axe(page) == []
            card.get_by_role("link", name="broken").click()
            expect(page.get_by_role("alert").first).to_contain_text("'<b>many</b>'")
        finally:
            raw.hset(config, "ackers", 1)
            world.ledger("broken").run(remove("broken", force=True))


def test_charts_grow_with_live_samples_and_stop_when_paused(new_page: NewPage) -> None:
    page = new_page("/t/words")
    expect(page.locator("[data-connection=live]")).to_be_attached()
    reads: list[str] = []
    page.on("request", lambda request: reads.append(request.url) if "/stats" in request.url else None)
    first = total(page, "tracked")
    wait_until(lambda: total(page, "tracked") > first)
    assert reads == []  # it is events that make it grow
    page.get_by_role("button", name="Freeze").click()
    expect(page).to_have_url(re.compile("paused=1"))
    expect(page.locator("[data-state=paused]")).to_be_visible()
    paused, clock = total(page, "tracked"), page.locator(".chart time").first
    shown = clock.text_content()
    # Two further seconds are shown by the page itself, so they did pass.
    expect(page.locator("[data-state=paused]")).to_have_text(re.compile(r"frozen, ([3-9]|[0-9]{2,}) s old"))
    assert (total(page, "tracked"), clock.text_content()) == (paused, shown)
    page.get_by_role("button", name="Unfreeze").click()
    wait_until(lambda: total(page, "tracked") > paused)


def test_windows_and_the_refresh_rate_are_in_the_url_and_undone_by_back(new_page: NewPage) -> None:
    page = new_page("/t/words")
    for name, window, asked in (
        ("15 minutes", "15m", "span=900"), ("1 day", "1d", "window=1d"), ("All", "all", "window=all"),
    ):  # fmt: skip
        with page.expect_response(re.compile(asked)):
            page.get_by_role("button", name=name).click()
        expect(page).to_have_url(re.compile(f"window={window}"))
        expect(page.get_by_role("button", name=name)).to_have_attribute("aria-pressed", "true")
        expect(page.locator(".chart canvas")).to_have_count(5)
    page.go_back()
    expect(page).to_have_url(re.compile("window=1d"))
    page.get_by_label("every").select_option("15")
    expect(page).to_have_url(re.compile("rate=15"))
    page.reload()
    expect(page.get_by_role("button", name="1 day")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_label("every")).to_have_value("15")


def test_the_cursor_reads_a_chart_out_by_pointer_and_by_keyboard(new_page: NewPage) -> None:
    page = new_page("/t/words?paused=1")
    wait_until_complete(page)
    plots = page.get_by_role("slider")
    expect(plots).to_have_count(5)
    plots.first.scroll_into_view_if_needed()
    times = page.locator(".chart time")
    latest = times.all_text_contents()
    box = plots.first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 40, box["y"] + 60)
    page.mouse.move(box["x"] + box["width"] - 80, box["y"] + 60)
    wait_until(lambda: times.all_text_contents() != latest)
    assert len(set(times.all_text_contents())) == 1  # the cursors of all charts move together
    page.mouse.move(2, 2)
    wait_until(lambda: times.all_text_contents() == latest)
    plots.first.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    wait_until(lambda: times.all_text_contents() != latest)
    assert plots.first.get_attribute("aria-valuetext")


def test_shards_spouts_and_bolts_are_listed_and_lead_on(new_page: NewPage, axe: Axe) -> None:
    page = new_page("/t/still")
    shards = page.get_by_role("region", name="Shards")
    expect(shards.locator("tbody tr")).to_have_count(2)
    shards.get_by_role("button", name="Shard").click()
    expect(shards.locator("th").first).to_have_attribute("aria-sort", "descending")
    page.set_viewport_size({"width": 390, "height": 844})  # cards, which have no head
    expect(shards.get_by_label("Sort by")).to_have_value("shard")
    first = shards.locator("tbody tr").first.locator("td").first
    expect(first).to_have_text("1")
    shards.get_by_role("button", name="make it rise").click()
    expect(first).to_have_text("0")
    shards.get_by_label("Sort by").select_option("In flight")
    expect(shards.get_by_role("button", name="make it rise")).to_be_visible()
    assert axe(page) == []
    page.set_viewport_size({"width": 1440, "height": 900})
    expect(page.get_by_role("heading", name="Bolts")).to_be_visible()
    page.get_by_role("region", name="Spouts").get_by_role("link", name="trees in flight").first.click()
    expect(page).to_have_url(re.compile(r"/t/still/trees\?spout=hostile"))


def test_message_ids_are_shown_as_they_are_and_do_nothing(new_page: NewPage) -> None:
    page = new_page("/t/still/trees?spout=hostile")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(len(HOSTILE))
    shown = rows.locator("td:nth-child(3)").all_text_contents()
    assert set(shown) == {
        "<script>window.hacked=1</script>",
        r"\xff\x00bytesbytes",  # the second is the tag that says so
        r"gpj\u{202e}exe.png",
        r"\x20a \x20b",
        "empty",
    }
    assert page.evaluate("window.hacked") is None
    rows.filter(has_text="xff").get_by_role("link").click()
    expect(page.get_by_role("region", name="Facts")).to_contain_text("/wBieXRlcw==")
    page.goto(page.url.rsplit("/", 1)[0])
    page.get_by_label("Message id").fill("base64:/wBieXRlcw==")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(r"\xff\x00bytes")
    page.get_by_label("Message id").fill(" a  b")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(r"\x20a \x20b")
    page.get_by_label("Message id").fill("<script>window.hacked=1</script>")
    page.keyboard.press("Enter")
    expect(rows).to_contain_text("<script>")
    assert page.evaluate("window.hacked") is None


def test_failures_come_by_themselves_newest_first_and_are_filtered(new_page: NewPage, world: World) -> None:
    ledger = world.ledger("failing", ackers=2, message_timeout=3600.0)
    trees = Trees(4).track(ledger, "lines")
    Trees(1).track(ledger, "others")
    page = new_page("/t/failing/outcomes")
    expect(page.get_by_text("Nothing has failed or expired of late.")).to_be_visible()
    rows = page.locator("tbody tr")
    ledger.fail(trees.anchors[:1], "<b>no</b> such word")
    expect(rows).to_have_count(1)
    ledger.fail(trees.anchors[1:2], "bad encoding")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("bad encoding")
    for _ in range(3):
        ledger.tick(force=True)
    expect(rows).to_have_count(5)
    expect(rows.first).to_contain_text("message timeout")
    page.get_by_label("Kind").select_option("failed")
    expect(rows).to_have_count(2)
    page.get_by_label("Reason").fill("NO</b> such")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(1)
    expect(page).to_have_url(re.compile(r"status=failed&reason="))
    page.go_back()
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Clear").click()
    page.get_by_label("Spout").select_option("others")
    expect(rows).to_have_count(1)
    page.get_by_label("Spout").select_option("")
    page.get_by_role("button", name="By cause").click()
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("60 %")
    expect(rows.first.get_by_role("img")).to_have_accessible_name(re.compile("^3 in the last half hour"))
    expect(rows.first).to_contain_text("message timeout")
    rows.filter(has_text="bad encoding").get_by_role("button", name="Show").click()
    expect(rows).to_have_count(1)
    expect(page.get_by_text("Only of the cause bad encoding")).to_be_visible()
    page.get_by_role("button", name="All causes").click()
    expect(rows).to_have_count(2)
    rows.filter(has_text="bad encoding").get_by_role("link").click()
    expect(page.get_by_role("region", name="History")).to_contain_text("Reason: bad encoding")


def test_a_tree_that_nobody_knows_is_said_to_be_so(new_page: NewPage) -> None:
    page = new_page(f"/t/still/trees/{ids.new_anchors(1)[0]}")
    expect(page.get_by_text("The topology knows no such tree")).to_be_visible()
    page = new_page("/t/nowhere")
    expect(page.get_by_role("alert")).to_have_count(1)  # its parts may say so, too, before it is known
    expect(page.get_by_role("alert")).to_contain_text("no topology 'nowhere'")


def test_a_tree_shows_where_it_is_and_that_this_is_all_and_its_streams_who_has_what(
    new_page: NewPage, world: World, axe: Callable[[Page], list[str]]
) -> None:
    ledger = world.ledger("places", ackers=1, message_timeout=3600.0, traces=1)
    for name in ("audit", "count"):
        Stream(ledger, "lines").subscribe(name)
    anchor, other = emit(ledger, 2).tolist()
    by = ledger.run(step_totals.mark(ledger.core, "split", 16))
    ledger.run(step_totals.mark(ledger.core, "store"))
    ledger.submit(ledger.core.update(np.array([other]), ids.new_ids(1), 0, by, 1).calls)
    events = of_ledger.make_events(ledger.core, "acked", "acked 1", np.array([anchor]), by)
    events += of_ledger.resets(ledger.core, np.array([anchor]), by)
    ledger.run(of_ledger.note(ledger.core, events))
    had = take(ledger, "lines", "count", reader="r1")
    ledger.store.send([holders.note_request(ledger.core, had, "<b>5f0c</b>\x1b[31m", 17)])
    page = new_page(f"/t/places/trees/{anchor}")
    region = page.get_by_role("region", name="Where it is")
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 844})
        expect(region).to_contain_text("Complete: these 2 places have all of its tuples.")
        places = region.locator("tbody tr")
        expect(places.filter(has_text="audit")).to_contain_text("nobody")
        expect(places.filter(has_text="count")).to_contain_text("batch 17")
        expect(places.filter(has_text="split")).to_contain_text("16")
        expect(places.filter(has_text="store")).to_contain_text("never")
        expect(region.get_by_role("listitem")).to_contain_text(
            ["acked by split, batch 16", "timeout reset by split, batch 16"]
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert axe(page) == []
    history = page.get_by_role("region", name="History")
    expect(history).to_contain_text("in bucket waiting")
    expect(history).to_contain_text(
        re.compile("clock stands still: waits for audit of stream lines since .* earliest")
    )
    [extra] = ids.new_ids(1)
    ledger.update([anchor], [extra])
    page.get_by_role("button", name="Look again").click()
    expect(region).to_contain_text("Some of its tuples are in no stream")
    edges = np.array([(anchor, int(extra), 20_000, 0)], held.Edges)
    ledger.run(held.note(ledger.core, "far", 1, held.Process("far", "\x1b.py", 7, ("tally",), 0), edges))
    page.get_by_role("button", name="Look again").click()
    expect(region).to_contain_text("Complete: these 3 places have all of its tuples.")
    expect(region.locator("tbody tr").filter(has_text="tally")).to_contain_text(r"7 (\x1b.py) on host far")
    page.get_by_role("link", name="In streams").click()
    rows = page.get_by_role("region", name="In streams").locator("tbody tr")
    expect(rows).to_have_count(2)
    held_rows = page.get_by_role("region", name="In plain Python").locator("tbody tr")
    expect(held_rows).to_contain_text(r"7 (\x1b.py) on host far")
    expect(rows.filter(has_text="count")).to_contain_text("batch 17")
    page.goto(f"{world.address}/t/places/trees?bucket=waiting")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator("tbody tr").first).to_contain_text("Clock stands still")
    ledger.run(remove("places", force=True))


def test_dead_letters_of_long_reasons_stay_within_their_cells(new_page: NewPage, world: World) -> None:
    ledger = world.ledger("reasons", ackers=1)
    try:
        bury(ledger, "RuntimeError: 500 Server Error for url: https://api.example.com/orders/" + "17/" * 60)
        phone = new_page("/t/reasons/dead-letters", viewport={"width": 390, "height": 844})
        example = phone.locator(".cause .faint")
        expect(example).to_contain_text("such as RuntimeError")
        # A row that came anew while it was looked at has no table around it any more.
        right = "getBoundingClientRect().right"
        cell = "of.closest('tr')?.querySelector('td')"
        inside = f"of => of.lastElementChild.{right} <= {cell}?.{right}"
        wait_until(lambda: bool(example.evaluate(inside)))
        label = example.locator("span").first
        assert label.evaluate("of => of.getClientRects().length") == 1
        wide = new_page("/t/reasons/dead-letters?view=rows")
        summary = wide.locator("td summary").first
        expect(summary).to_be_visible()
        lines = "of => of.getBoundingClientRect().height / parseFloat(getComputedStyle(of).fontSize)"
        assert summary.evaluate(lines) < 2
    finally:
        ledger.run(remove("reasons", force=True))


def test_the_theme_follows_the_system_until_it_is_chosen_by_hand(new_page: NewPage) -> None:
    def ground() -> int:
        colour = str(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
        return sum(map(int, re.findall(r"\d+", colour)[:3]))

    page = new_page("/t/words", color_scheme="dark")
    assert ground() < 150
    page.emulate_media(color_scheme="light")
    assert ground() > 600
    page.get_by_label("Theme").select_option("dark")
    assert ground() < 150
    page.reload()
    assert ground() < 150
    page.get_by_label("Theme").select_option("system")
    assert ground() > 600


def test_the_first_load_is_small_and_comes_from_here_only(new_page: NewPage, world: World) -> None:
    page = new_page("/")
    expect(page.get_by_role("article")).not_to_have_count(0)
    entries = page.evaluate(
        """["navigation", "resource"].flatMap((type) => performance.getEntriesByType(type))
            .map((one) => ({ url: one.name, size: one.encodedBodySize }))"""
    )
    assert all(one["url"].startswith(world.address) for one in entries)
    own = [one for one in entries if "/api/" not in one["url"]]
    assert 100_000 < sum(one["size"] for one in own) < 250_000
