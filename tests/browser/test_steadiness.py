"""Nothing that is looked at moves away while a view is live."""

import pytest
from playwright.sync_api import Page, expect

from acker.embedded import EmbeddedServer
from acker.ledger import ids
from acker.ledger.client import open_ledger
from acker.store.client import Store
from tests.helpers.builders.ledgers import Trees
from tests.helpers.faces.api import serving
from tests.helpers.faces.browser import NewPage, World, total, wait_until_complete
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.slow


def note_moves(page: Page) -> None:
    """Notes what moves from now on, for `moves`."""
    page.evaluate(
        """() => {
            window.moves = [];
            const what = ({ node }) => node?.className || node?.nodeName || "gone";
            const add = (list) => list.getEntries().forEach(
                (one) => window.moves.push({ share: one.value, what: one.sources.map(what) })
            );
            new PerformanceObserver(add).observe({ type: "layout-shift" });
        }"""
    )


def moves(page: Page) -> list[dict[str, object]]:
    """The elements that moved by enough to see it."""
    found: list[dict[str, object]] = page.evaluate("window.moves")
    return found if sum(float(str(one["share"])) for one in found) >= 0.01 else []


def test_nothing_moves_while_a_view_is_live(new_page: NewPage) -> None:
    page = new_page("/t/words")
    wait_until_complete(page)
    note_moves(page)
    first = total(page, "tracked")
    wait_until(lambda: total(page, "tracked") > first + 20)
    assert moves(page) == []


def test_trouble_that_comes_up_is_reported_and_moves_nothing(new_page: NewPage, world: World) -> None:
    name = f"filling-{ids.new_id():x}"
    filling = world.ledger(name, ackers=1, high_water_mark=100, message_timeout=3600.0)
    Trees(50).track(filling, "lines")
    page = new_page(f"/t/{name}")
    wait_until_complete(page)
    expect(page.get_by_text("healthy")).to_be_visible()
    note_moves(page)
    Trees(45).track(filling, "lines")
    reported = page.locator("[data-trouble=nearly-full]")
    expect(reported).to_contain_text("A shard holds 95% of what it may. Since ")
    expect(reported).to_contain_text("Look for a spout that does not confirm, or for slow bolts.")
    expect(reported.get_by_role("link", name="Trees in flight")).to_be_visible()
    assert moves(page) == []


def test_a_second_trouble_moves_nothing_either(new_page: NewPage) -> None:
    with (
        EmbeddedServer(append_only=False) as server,
        serving(server.url, ticker=False, log_level="error") as address,
    ):
        filling = open_ledger(
            Store(server.url), "filling-and-not-ticking", ackers=1, high_water_mark=100, message_timeout=1.0
        )
        Trees(50).track(filling, "lines")
        page = new_page("/t/filling-and-not-ticking", address, viewport={"width": 1100, "height": 900})
        wait_until_complete(page)
        expect(page.locator("[data-trouble=no-ticks]")).to_be_visible()
        note_moves(page)
        Trees(45).track(filling, "lines")
        expect(page.locator("[data-trouble=nearly-full]")).to_be_visible()
        assert moves(page) == []
        page.goto("about:blank")
