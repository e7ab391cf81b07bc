"""An operator's actions: look for trees, fail and reset them, replay dead letters, download rows."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from playwright.sync_api import Page, expect

from acker.ledger.client import Ledger
from acker.streams import Stream, StreamReader
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers.builders.ledgers import Trees
from tests.helpers.builders.streaming import emit
from tests.helpers.faces.browser import NewPage, World, bury

pytestmark = pytest.mark.slow


def filled(world: World, name: str) -> tuple[Ledger, Trees]:
    ledger = world.ledger(name, ackers=2, message_timeout=3600.0)
    return ledger, Trees(70).track(ledger, "lines")


def test_trees_are_filtered_and_paged_and_the_url_says_how(new_page: NewPage, world: World) -> None:
    ledger, trees = filled(world, "paged")
    ledger.tick(force=True)
    Trees(3).track(ledger, "others")
    page = new_page("/t/paged/trees")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="Next page").click()
    expect(rows).to_have_count(23)
    page.go_back()
    expect(rows).to_have_count(50)
    page.get_by_label("Spout").select_option("others")
    expect(rows).to_have_count(3)
    page.get_by_label("Bucket").select_option("middle")
    expect(page.get_by_text("No tree in flight is like that.")).to_be_visible()
    page.get_by_label("Bucket").select_option("nursery")
    expect(rows).to_have_count(3)
    shard = rows.first.locator("td:nth-child(7)").text_content()
    assert shard is not None
    page.get_by_label("Shard").select_option(shard)
    expect(rows).to_have_count(3)
    page.get_by_label("State").select_option("waiting")
    expect(rows).to_have_count(0)
    page.get_by_role("button", name="Clear").click()
    page.get_by_label("Older than").select_option("3600")
    expect(rows).to_have_count(0)
    page.get_by_label("Older than").select_option("")
    page.get_by_label("Message id").fill("message 7")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(str(trees.anchors[7]))
    address = page.url
    page.reload()
    expect(rows).to_contain_text(str(trees.anchors[7]))
    assert page.url == address


def test_filters_that_are_set_before_the_view_was_drawn_anew_add_up(new_page: NewPage, world: World) -> None:
    page = new_page("/t/still/trees?spout=lines")
    expect(page.locator("tbody tr")).to_have_count(50)
    page.evaluate(
        """async () => {
            for (const [label, value] of [["Bucket", "nursery"], ["State", "pending"], ["Spout", ""]]) {
                const labels = [...document.querySelectorAll("label")];
                const field = labels.find((one) => one.textContent.startsWith(label)).querySelector("select");
                field.value = value;
                field.dispatchEvent(new Event("change", { bubbles: true }));
                await new Promise((resolve) => setTimeout(resolve));
            }
        }"""
    )
    expect(page).to_have_url(re.compile(r"/t/still/trees\?bucket=nursery&state=pending$"))


def test_selected_trees_are_failed_after_a_confirmation(new_page: NewPage, world: World) -> None:
    ledger, _ = filled(world, "failed")
    page = new_page("/t/failed/trees")
    for index in (0, 1, 2):
        page.locator("tbody").get_by_role("checkbox").nth(index).check()
    expect(page.get_by_text("3 trees selected; updates wait")).to_be_visible()
    page.get_by_role("button", name="Fail…").click()
    dialog = page.get_by_role("dialog", name="Fail 3 trees?")
    expect(dialog).to_contain_text("at once and for good")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert ledger.counters()["failed"] == 0
    page.get_by_role("button", name="Fail…").click()
    dialog.get_by_label("Reason").fill("looked at by hand")
    page.keyboard.press("Enter")
    expect(page.get_by_text("3 trees failed.")).to_be_visible()
    assert ledger.counters()["failed"] == 3
    page.get_by_role("link", name="Failures").click()
    expect(page.locator("tbody tr")).to_have_count(3)
    expect(page.locator("tbody tr").first).to_contain_text("looked at by hand")


def test_all_trees_of_a_filter_are_failed_after_their_number_is_typed(
    new_page: NewPage, world: World
) -> None:
    ledger, _ = filled(world, "every")
    Trees(5).track(ledger, "others")
    page = new_page("/t/every/trees?spout=lines")
    page.get_by_role("button", name="Select all that match").click()
    expect(page.get_by_text("all 70 trees that match selected; updates wait")).to_be_visible()
    page.get_by_role("button", name="Fail…").click()
    dialog = page.get_by_role("dialog", name="Fail 70 trees?")
    expect(dialog.get_by_role("button", name="Fail 70 trees")).to_be_disabled()
    dialog.get_by_label("Type 70 to confirm").fill("70")
    dialog.get_by_role("button", name="Fail 70 trees").click()
    expect(page.get_by_text("70 trees failed.")).to_be_visible()
    assert ledger.counters()["failed"] == 70
    expect(page.locator(".last-write")).to_contain_text("failed 70")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("tbody tr")).to_have_count(5)
    page.get_by_role("button", name="Select all that match").click()
    page.get_by_role("button", name="Reset timeout…").click()
    page.get_by_role("dialog").get_by_role("button", name="Reset timeout").click()
    expect(page.get_by_text("1 slab went back to the nursery, with all their trees.")).to_be_visible()


def test_a_reset_of_whole_slabs_says_so_and_gives_the_time_again(new_page: NewPage, world: World) -> None:
    ledger, _ = filled(world, "reset")
    for _ in range(2):
        ledger.tick(force=True)
    page = new_page("/t/reset/trees?bucket=oldest")
    page.locator("tbody").get_by_role("checkbox").first.check()
    page.get_by_role("button", name="Reset timeout…").click()
    dialog = page.get_by_role("dialog", name="Reset the timeout of 1 tree?")
    expect(dialog).to_contain_text("same slab")
    expect(dialog).to_contain_text("1 h")
    dialog.get_by_role("button", name="Reset timeout").click()
    expect(page.get_by_text("1 slab went back to the nursery, with all their trees.")).to_be_visible()
    expect(page.get_by_text("No tree in flight is like that.")).to_be_visible()
    page.get_by_label("Bucket").select_option("nursery")
    expect(page.locator("tbody tr")).to_have_count(50)


def test_a_tree_is_failed_on_its_page_which_tells_how_it_ended(new_page: NewPage, world: World) -> None:
    ledger, trees = filled(world, "single")
    page = new_page(f"/t/single/trees/{trees.anchors[5]}")
    history = page.get_by_role("region", name="History")
    expect(history).to_contain_text("In flight, in bucket nursery")
    expect(page.get_by_role("region", name="Facts")).to_contain_text("message 5")
    page.get_by_role("button", name="Reset timeout…").click()
    page.get_by_role("dialog").get_by_role("button", name="Reset timeout").click()
    expect(page.get_by_role("status").filter(has_text="1 slab")).to_be_visible()
    page.get_by_role("button", name="Fail…").click()
    page.get_by_role("button", name="Fail 1 tree").click()
    expect(history).to_contain_text("Reason: failed by hand")
    expect(page.get_by_role("button", name="Fail…")).to_be_disabled()
    assert ledger.counters()["failed"] == 1


def test_groups_of_dead_letters_are_replayed_and_discarded(new_page: NewPage, world: World) -> None:
    ledger = world.ledger("causes", ackers=1)
    spout = StreamSpout(ledger, SpoutOptions("orders", "orders", "id", attempts=1))
    spout.write(pa.table({"id": list(range(12)), "text": ["<i>row</i>"] * 12}))
    reader = StreamReader(ledger, "orders")
    for row in reader.rows():
        number = int(str(row["id"]))
        why = f"order {5000 + number} answered 500" if number < 9 else f"malformed: 'n{number}'"
        ledger.fail([int(str(row["_acker"]))], why)
    settler.settle(ledger)
    reader.ack_all()
    page = new_page("/t/causes/dead-letters?rate=1")
    groups = page.locator("tbody tr")
    expect(groups).to_have_count(2)
    expect(groups.nth(0)).to_contain_text("order … answered 500")
    expect(groups.nth(0)).to_contain_text("such as order 50")
    expect(page.get_by_role("link", name="Dead letters 12")).to_be_visible()
    groups.nth(1).get_by_role("button", name="Discard…").click()
    dialog = page.get_by_role("dialog", name="Discard 3 dead letters?")
    expect(dialog).to_contain_text("gone for good")
    dialog.get_by_role("button", name="Cancel").click()
    expect(groups).to_have_count(2)
    groups.nth(1).get_by_role("button", name="Discard…").click()
    expect(dialog.get_by_role("button", name="Discard 3 dead letters")).to_be_disabled()
    dialog.get_by_label("Type 3 to confirm").fill("3")
    dialog.get_by_role("button", name="Discard 3 dead letters").click()
    expect(page.get_by_text("3 rows discarded.")).to_be_visible()
    expect(groups).to_have_count(1)
    groups.nth(0).get_by_role("button", name="Show").click()
    expect(page.locator("tbody tr")).to_have_count(9)
    expect(page.get_by_text("Only of the cause order … answered 500")).to_be_visible()
    # The service settles, too: the rows may have been given up one after the other.
    page.locator("tbody tr").filter(has_text="order 5000 answered").get_by_role("link").click()
    expect(page.get_by_role("region", name="Row")).to_contain_text("<i>row</i>")
    expect(page.get_by_role("region", name="Facts")).to_contain_text("order 5000 answered 500")
    expect(page.get_by_role("region", name="Attempts")).to_contain_text("Attempt 1: failed")
    page.get_by_role("button", name="Replay…").click()
    page.get_by_role("dialog").get_by_role("button", name="Replay").click()
    expect(page.get_by_text("There is no such dead letter")).to_be_visible()
    page.get_by_role("main").get_by_role("link", name="Dead letters").click()
    # What was read before is shown until it is read again.
    expect(groups.nth(0).locator("td").first).to_have_text("8")
    groups.nth(0).get_by_role("button", name="Replay…").click()
    page.get_by_role("dialog", name="Replay 8 dead letters?").get_by_role("button", name="Replay").click()
    expect(page.get_by_text("8 rows will be tried again.")).to_be_visible()
    expect(page.locator(".toolbar .last-write")).to_contain_text(
        re.compile(r" \(not proved\) replayed 8, \d+")
    )
    expect(page.get_by_text("No row was given up: there is no dead letter.")).to_be_visible()
    assert sorted(int(str(row["id"])) for row in StreamReader(ledger, "orders").rows()) == list(range(9))
    page.get_by_role("link", name="Activity").click()
    expect(groups).to_have_count(3)
    expect(groups.nth(0)).to_contain_text("replay")
    expect(groups.nth(0)).to_contain_text("cause order … answered 500")
    page.get_by_label("Action").select_option("discard")
    expect(groups).to_have_count(1)
    expect(groups.nth(0).locator("td").nth(3)).to_have_text("3")


def test_dead_letters_are_looked_into_and_replayed(new_page: NewPage, world: World) -> None:
    ledger = world.ledger("buried", ackers=1)
    bury(ledger)
    page = new_page("/t/buried/dead-letters?view=rows")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    two = rows.filter(has=page.get_by_text("2", exact=True))
    expect(two).to_contain_text("<b>bad</b>")
    two.get_by_text("show").click()
    expect(two.locator("pre")).to_contain_text("<b>two</b>")
    for index in (0, 1):
        page.locator("tbody").get_by_role("checkbox").nth(index).check()
    page.get_by_role("button", name="Replay…").click()
    dialog = page.get_by_role("dialog", name="Replay 2 dead letters?")
    expect(dialog).to_contain_text("handed to the spout again")
    dialog.get_by_role("button", name="Replay").click()
    expect(page.get_by_text("2 rows will be tried again.")).to_be_visible()
    expect(rows).to_have_count(1)
    assert [row["id"] for row in StreamReader(ledger, "lines").rows()] == [1, 2]


def download(page: Page, kind: str, directory: Path) -> str:
    with page.expect_download() as waiting:
        page.get_by_role("button", name=kind, exact=True).click()
    path = directory / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path.read_text(encoding="utf-8-sig" if kind == "CSV" else "utf-8")


def test_rows_of_all_pages_are_saved_as_files(new_page: NewPage, world: World, tmp_path: Path) -> None:
    ledger, trees = filled(world, "export")
    page = new_page("/t/export/trees")
    rows = list(csv.DictReader(io.StringIO(download(page, "CSV", tmp_path), newline="")))
    assert {row["anchor"] for row in rows} == {f"'{anchor}" for anchor in trees.anchors}  # text for a sheet
    assert (tmp_path / "export-trees.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    ledger.fail(trees.anchors[:60], "=1+1")
    page.goto(f"{world.address}/t/export/outcomes")
    expect(page.locator("tbody tr")).to_have_count(50)
    found = json.loads(download(page, "JSON", tmp_path))
    assert len(found) == 60
    assert {one["anchor"] for one in found} == {str(anchor) for anchor in trees.anchors[:60]}
    rows = list(csv.DictReader(io.StringIO(download(page, "CSV", tmp_path), newline="")))
    assert {row["reason"] for row in rows} == {"'=1+1"}  # no formula for a sheet
    expect(page.get_by_text(re.compile("60 rows saved"))).to_be_visible()


def test_a_subscription_and_a_topology_are_removed_once_their_names_are_typed(
    new_page: NewPage, world: World, axe: Callable[[Page], list[str]]
) -> None:
    ledger = world.ledger("doomed", ackers=1, message_timeout=3600.0)
    for name in ("audit", "count"):
        Stream(ledger, "lines").subscribe(name)
    emit(ledger, 2)
    page = new_page("/t/doomed")
    page.get_by_label("Subscription").select_option("audit of lines")
    page.get_by_role("button", name="Remove subscription…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 rows wait for it.")
    assert axe(page) == []
    remove = dialog.get_by_role("button", name="Remove subscription")
    dialog.get_by_label("Type audit to confirm").fill("audi")
    expect(remove).to_be_disabled()
    dialog.get_by_label("Type audit to confirm").fill("audit")
    remove.click()
    expect(page.get_by_text("Subscription audit of lines is gone; 1 segment failed.")).to_be_visible()
    expect(page.get_by_label("Subscription").locator("option")).to_have_text(["choose one", "count of lines"])
    page.get_by_role("button", name="Remove topology…").click()
    expect(dialog).to_contain_text("an outcome that is not confirmed: no spout hears of them again.")
    dialog.get_by_label("Type doomed to confirm").fill("doomed")
    dialog.get_by_role("button", name="Remove topology").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Topologies")
    expect(page.get_by_role("article", name="still", exact=True)).to_be_visible()
    expect(page.get_by_role("article", name="doomed", exact=True)).to_have_count(0)
