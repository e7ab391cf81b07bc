"""The dashboard beside its service: tokens, restarts, a store that is away, protections."""

import re
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from acker.embedded import EmbeddedServer
from acker.inspect.operate.removal import remove
from acker.ledger import ids
from acker.ledger.client import open_ledger
from acker.store.client import Store
from tests.helpers.builders.graphs import chain
from tests.helpers.builders.ledgers import Trees
from tests.helpers.builders.streaming import emit
from tests.helpers.faces import patient
from tests.helpers.faces.api import OPERATE, READ, TOKENS, serving
from tests.helpers.faces.browser import NewPage, World

pytestmark = pytest.mark.slow


def test_a_token_is_asked_for_kept_for_the_tab_and_its_scope_respected(
    new_page: NewPage, world: World, axe: Callable[[Page], list[str]]
) -> None:
    ledger = world.ledger("guarded", message_timeout=3600.0)
    trees = Trees(2).track(ledger)
    with serving(world.url, tokens=TOKENS, log_level="error") as address:
        page = new_page("/t/guarded/trees", address)
        field, use = page.get_by_label("Token"), page.get_by_role("button", name="Use token")
        expect(page.get_by_text("This service asks for a token.")).to_be_visible()
        expect(field).to_be_focused()
        assert axe(page) == []
        field.fill("wrong-token-of-some-length")
        use.click()
        expect(page.get_by_role("alert")).to_contain_text("does not accept this token")
        expect(field).to_be_focused()
        field.fill(READ)
        use.click()
        expect(page.locator("tbody tr")).to_have_count(2)
        page.reload()
        expect(page.locator("tbody tr")).to_have_count(2)
        for view in ("trees", f"trees/{trees.anchors[0]}", "dead-letters"):
            page.goto(f"{address}/t/guarded/{view}")
            expect(page.get_by_text("need one of scope operate")).to_be_visible()
            for button in page.get_by_role("button", name=re.compile("^(Fail|Reset|Replay)")).all():
                expect(button).to_be_disabled()
                expect(button).to_have_accessible_description(re.compile("Your token allows no changes"))
            expect(page.get_by_role("checkbox")).to_have_count(0)
            assert axe(page) == []
        page.goto(f"{address}/t/guarded/trees")
        page.get_by_role("button", name="Forget token").click()
        field.fill(OPERATE)
        use.click()
        page.locator("tbody").get_by_role("checkbox").first.check()
        page.get_by_role("button", name="Fail…").click()
        page.get_by_role("button", name="Fail 1 tree").click()
        expect(page.get_by_text("1 tree failed.")).to_be_visible()
        assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        another = page.context.new_page()
        another.goto(page.url)
        expect(another.get_by_label("Token")).to_be_visible()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_it_says_that_it_is_stale_until_the_service_restarts(new_page: NewPage, world: World) -> None:
    port = free_port()
    with serving(world.url, port=port, log_level="error") as address:
        page = new_page("/t/words", address)
        expect(page.locator("[data-connection=live]")).to_be_attached()
        expect(page.locator("[data-state=live]")).to_be_visible()
    expect(page.locator("[data-state=stale]")).to_have_text(re.compile(r"last update [0-9]+ s ago"))
    expect(page.locator("[data-connection=lost]")).to_be_attached()
    expect(page.locator(".chart canvas")).to_have_count(5)  # what it knew stays
    with serving(world.url, port=port, log_level="error"):
        expect(page.locator("[data-state=live]")).to_be_visible()
        expect(page.locator("[data-connection=live]")).to_be_attached()


def test_it_says_that_the_store_is_away_or_empty(new_page: NewPage, tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer(tmp_path / "store"))
        address = stack.enter_context(serving(server.url, timeout=0.5, log_level="error"))
        page = new_page("/", address)
        expect(page.get_by_text("The store holds no topology yet.")).to_be_visible()
        open_ledger(Store(server.url), "words", ackers=1)
        expect(page.get_by_text("healthy")).to_be_visible()
        top = page.get_by_role("article").bounding_box()
        one = new_page("/t/words", address)
        ticker = one.locator(".facts div", has_text="Ticker").locator("dd")
        expect(ticker).to_contain_text("alive")
        server.close()
        expect(ticker).to_have_text("unknown")
        expect(page.locator("[data-state=stale]")).to_be_visible()
        expect(page).to_have_title("unknown now · acker")
        expect(page.get_by_role("group", name="State").locator(".count").first).to_have_text("?")
        expect(page.get_by_role("alert")).to_contain_text("its store is away")
        expect(page.get_by_role("alert")).not_to_contain_text("..")
        expect(page.get_by_text("healthy")).to_have_count(0)
        assert page.get_by_role("article").bounding_box() == top, "nothing moves when it is shown"
        page.goto(f"{address}/t/words")
        expect(page.get_by_role("alert").first).to_contain_text("its store is away")
        expect(page.get_by_text("Loading")).to_have_count(
            0
        )  # each part of the view has asked for the first time
        # It is asked again and again, and says so all the while.
        page.evaluate(
            """() => new MutationObserver(() => {
                if (document.body.innerText.includes("Loading")) window.flickered = true;
            }).observe(document.body, { subtree: true, childList: true, characterData: true })"""
        )
        for _ in range(2):
            with page.expect_response(re.compile("/api/v1/topologies/words$")):
                pass
        assert not page.evaluate("window.flickered")


def test_behind_a_path_every_view_asks_for_what_lies_there(new_page: NewPage, world: World) -> None:
    ledger = world.ledger("below", ackers=1, message_timeout=3600.0)
    chain(ledger, 2)
    [anchor] = emit(ledger, 1, "stream-1")
    ledger.track(ids.new_anchors(1), ids.new_ids(1), [b"a/b?c#d%2F"], spout="s")
    with serving(world.url, root_path="/of/acker", log_level="error") as address:
        bad: list[str] = []
        page = new_page("/healthz", address)
        page.on("request", lambda one: None if "/of/acker/" in one.url else bad.append(one.url))
        page.on("response", lambda one: bad.append(one.url) if one.status >= 400 else None)
        page.goto(f"{address}/of/acker/t/below")
        page.locator('[data-node="stream:stream-1"]').click()
        page.get_by_role("link", name="all that lies in streams").click()
        expect(page.get_by_role("region", name="In streams").locator("tbody tr")).to_have_count(1)
        page.get_by_role("searchbox").fill(str(anchor))
        page.keyboard.press("Enter")
        page.get_by_role("region", name="Tree of this anchor").get_by_role("link").first.click()
        expect(page.get_by_role("region", name="Where it is")).to_contain_text("this place has all")
        expect(page).to_have_url(f"{address}/of/acker/t/below/trees/{anchor}")
        page.get_by_role("searchbox").fill("a/b?c#d%2F")
        page.keyboard.press("Enter")
        # The page of a tree, too, has a list of attempts.
        page.get_by_role("region", name="By message id").get_by_role("link").click()
        expect(page.get_by_role("region", name="Facts")).to_contain_text("a/b?c#d%2F")
        page.reload()
        expect(page.get_by_role("region", name="Facts")).to_contain_text("a/b?c#d%2F")
        page.evaluate("() => Promise.all([...document.images].map(one => one.decode().catch(() => 0)))")
        assert bad == []
    ledger.run(remove("below", force=True))


def test_the_page_is_served_under_a_strict_policy_and_paths_of_the_api_stay_theirs(world: World) -> None:
    page = patient.get(f"{world.address}/t/any.where/trees")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["cache-control"] == "no-cache"
    [script] = re.findall(r'src="(/assets/[^"]+\.js)"', page.text)
    assert "immutable" in patient.get(world.address + script).headers["cache-control"]
    assert not re.search(r"<script>|<script [^>]*>[^<]|style=", page.text)
    for path in ("/api/v1/nothing", "/assets/nothing.js", "/assets/%2e%2e/%2e%2e/pyproject.toml"):
        answer = patient.get(world.address + path)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json"), path
    assert patient.put(f"{world.address}/api/v1/topologies").status_code == 405
