"""The graph at the top of a topology's page, small and large, as a drawing and as a list."""

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from acker.errors import SpoutPaused
from acker.inspect.operate.removal import remove
from acker.inspect.topology import health
from acker.ledger.client import Ledger
from tests.helpers.builders.graphs import at_work, chain
from tests.helpers.builders.ledgers import Trees
from tests.helpers.builders.streaming import ack, emit, take
from tests.helpers.faces import patient
from tests.helpers.faces.browser import NewPage, World, wait_until_complete
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.slow

LONG = f"{'WMwm-' * 12}-end"
"""The longest name, of the widest letters."""
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="package", params=[3, 60])
def steps(request: pytest.FixtureRequest, world: World) -> Iterator[int]:
    """A topology `chain` of so many steps, whose last one has 200 rows to do and does not."""
    number: int = request.param
    ledger = world.ledger("chain", ackers=1, message_timeout=3600.0)
    chain(ledger, number)
    ledger.run(health.set_thresholds(ledger.core, {"behind": 1e-9, "silence": 0, "failed": 0}))
    # The service goes by a health of up to a second ago, and a drawing begins where it was worst then.
    wait_until(lambda: worst(world) == f"step:step-{number - 1}")
    yield number
    ledger.run(remove("chain", force=True))


def worst(world: World) -> object:
    found = patient.get(f"{world.address}/api/v1/topologies/chain/graph").raise_for_status().json()
    return found["worst"] and found["worst"]["node"]


@pytest.fixture
def ledger(world: World) -> Iterator[Ledger]:
    made = world.ledger("graph", ackers=1, message_timeout=3600.0)
    yield made
    made.run(remove("graph", force=True))


def node(page: Page, name: str) -> Locator:
    return page.locator(f'[data-node="{name}"]')


def names_are_whole(page: Page) -> bool:
    whole = "one.scrollHeight <= one.clientHeight + 1 && one.scrollWidth <= one.clientWidth + 1"
    names = page.locator(".drawing .part .name b")
    return bool(names.evaluate_all(f"all => all.every(one => {whole})"))


def reads_well(page: Page, axe: Callable[[Page], list[str]]) -> None:
    """A page is no wider than its window, and is well to read, in the light and in the dark."""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        assert axe(page) == [], theme


def test_a_graph_is_drawn_and_shows_and_names_where_it_is_worst(
    new_page: NewPage, steps: int, axe: Callable[[Page], list[str]]
) -> None:
    page = new_page("/t/chain")
    expect(page.locator(".drawing .part")).to_have_count(2 * steps + 1)
    expect(page.locator(".drawing path.reads, .drawing path.emits")).to_have_count(2 * steps)
    last = node(page, f"step:step-{steps - 1}")
    expect(last).to_be_in_viewport()  # the drawing begins where it is worst, however large it is
    expect(last).to_contain_text("200 behind")
    expect(last).to_contain_text("needs a look")
    expect(page.locator(".part.worst")).to_have_count(1)
    expect(page.locator(".edge-label.worst")).to_contain_text("oldest ")
    expect(page.locator("[data-trouble=behind]")).to_contain_text(
        f"200 rows of stream stream-{steps - 1} wait for step-{steps - 1}, the oldest for "
    )
    expect(page.locator(".worst-line")).to_have_text(f"▲ At step step-{steps - 1}")
    expect(node(page, "step:step-0")).to_contain_text("12 failed")
    # Until the drawing is made anew, figures that have just come may make a part wider.
    page.wait_for_function("""() => {
        const all = [...document.querySelectorAll(".drawing .part")];
        return !all.some((one, index) => all.slice(index + 1).some(other => {
            const [a, b] = [one, other].map(each => each.getBoundingClientRect());
            return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
        }));
    }""")
    assert names_are_whole(page)
    page.locator(".worst-line").get_by_role("link").click()
    facts = page.get_by_role("region", name=f"step-{steps - 1}")
    expect(facts.get_by_role("list", name="Stuck places")).to_contain_text(
        f"200 rows of stream-{steps - 1} for default, the oldest"
    )
    expect(facts).to_contain_text("taken by nobody")
    node(page, f"stream:stream-{steps - 1}").click()
    facts = page.get_by_role("region", name=f"stream-{steps - 1}")
    expect(facts.get_by_role("list", name="Stuck places")).to_contain_text("taken by nobody")
    reads_well(page, axe)


def test_on_a_phone_it_is_a_list(new_page: NewPage, steps: int, axe: Callable[[Page], list[str]]) -> None:
    page = new_page("/t/chain", viewport=PHONE, has_touch=True, is_mobile=True)
    parts = page.locator(".parts-list .part")
    expect(parts).to_have_count(2 * steps + 1)
    expect(page.locator(".drawing")).to_have_count(0)
    order = ["spout:s"] + [
        f"{kind}-{number}" for number in range(steps) for kind in ("stream:stream", "step:step")
    ]
    assert parts.evaluate_all("all => all.map(one => one.dataset.node)") == order
    expect(parts.last).to_contain_text(
        re.compile(rf"needs a look.*200 behind.*from stream-{steps - 1}, 0 rows/s, 200 rows behind, oldest ")
    )
    page.locator(".worst-line").get_by_role("link").tap()
    facts = page.locator("li", has=node(page, f"step:step-{steps - 1}")).get_by_role("region")
    expect(facts).to_contain_text("taken by nobody")
    node(page, f"stream:stream-{steps - 1}").tap()
    expect(page.get_by_role("list", name="Stuck places")).to_contain_text("taken by nobody")
    reads_well(page, axe)


def test_it_is_walked_by_keyboard_and_each_node_says_what_it_is(new_page: NewPage, steps: int) -> None:
    page = new_page("/t/chain")
    last = f"step-{steps - 1}"
    expect(node(page, f"step:{last}")).to_be_in_viewport()
    assert page.locator(".drawing .part[tabindex='0']").count() == 1
    page.get_by_role("button", name="List").focus()
    page.keyboard.press("Tab")
    expect(node(page, f"step:{last}")).to_be_focused()
    expect(node(page, f"step:{last}")).to_have_accessible_name(
        re.compile(rf"^{last} step needs a look seen .* 200 behind from stream-{steps - 1}, ")
    )
    expect(page.get_by_role("status").filter(has_text=f"step {last} needs a look")).to_be_attached()
    page.keyboard.press("ArrowLeft")
    expect(node(page, f"stream:stream-{steps - 1}")).to_be_focused()
    page.keyboard.press("Home")
    expect(node(page, "spout:s")).to_be_focused()
    expect(node(page, "spout:s")).to_be_in_viewport()
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    expect(node(page, "step:step-0")).to_be_focused()
    page.keyboard.press("Enter")
    facts = page.get_by_role("region", name="step-0")
    expect(facts).to_contain_text("query of step-0")
    expect(page).to_have_url(re.compile("node=step%3Astep-0"))
    page.keyboard.press("Tab")
    expect(facts.get_by_role("link", name="Close")).to_be_focused()
    page.keyboard.press("Enter")
    expect(facts).to_have_count(0)
    expect(node(page, "step:step-0")).to_be_focused()
    page.get_by_role("button", name="List").click()
    expect(page.locator(".parts-list .part")).to_have_count(2 * steps + 1)
    page.reload()
    expect(page.locator(".parts-list .part")).to_have_count(2 * steps + 1)


def test_a_node_leads_to_its_failures_stuck_places_and_stream(new_page: NewPage, ledger: Ledger) -> None:
    chain(ledger, 2)
    page = new_page("/t/graph")
    node(page, "step:step-0").click()
    page.get_by_role("link", name="its failures").click()
    expect(page.locator("tbody tr")).to_have_count(12)
    expect(page.locator("tbody tr").first).to_contain_text("no such <b>word</b>")
    page.get_by_label("Step").fill("step-1")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Nothing that failed or expired is like that.")).to_be_visible()
    for _ in range(2):
        page.go_back()
    expect(page.get_by_role("region", name="step-0")).to_be_visible()
    node(page, "stream:stream-1").click()
    facts = page.get_by_role("region", name="stream-1")
    facts.get_by_role("link", name="all streams").click()
    expect(page.get_by_role("region", name="Streams")).to_be_in_viewport()
    facts.get_by_role("link", name="all that lies in streams").click()
    expect(page.get_by_role("region", name="In streams").locator("tbody tr")).to_have_count(1)


def test_a_spout_is_paused_with_a_reason_and_resumed(
    new_page: NewPage, ledger: Ledger, axe: Callable[[Page], list[str]]
) -> None:
    at_work(ledger, "s", emits="lines")
    at_work(ledger, "new", emits="lines")
    ledger.register_spout("s")
    page = new_page("/t/graph")
    node(page, "spout:new").click()
    facts = page.get_by_role("region", name="new", exact=False)
    expect(facts.get_by_role("link", name="trees in flight")).to_be_visible()
    expect(page.locator(".summary")).to_be_visible()  # it has been read which spouts there are
    expect(facts.get_by_role("button", name="Pause spout…")).to_have_count(0)
    node(page, "spout:s").click()
    facts = page.get_by_role("region", name="s", exact=False)
    facts.get_by_role("button", name="Pause spout…").click()
    dialog = page.get_by_role("dialog", name="Pause spout s?")
    assert axe(page) == []
    dialog.get_by_label("Reason").fill("a bad <b>file</b>")
    dialog.get_by_role("button", name="Pause spout").click()
    expect(facts.locator(".paused")).to_contain_text(re.compile(r"Paused by .* since .*: a bad <b>file</b>"))
    expect(node(page, "spout:s")).to_contain_text("paused")
    expect(page.locator("[data-muted=paused]")).to_contain_text("Paused by")
    with pytest.raises(SpoutPaused, match="a bad <b>file</b>"):
        Trees(1).track(ledger)
    facts.get_by_role("button", name="Resume spout…").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume spout").click()
    expect(facts.get_by_text("It goes on.")).to_be_visible()
    expect(facts.locator(".paused")).to_have_count(0)
    Trees(1).track(ledger)


def test_it_is_live_and_only_what_is_new_moves_it(new_page: NewPage, ledger: Ledger) -> None:
    page = new_page("/t/graph")
    expect(page.get_by_text("Nothing yet: what spouts, steps and streams do is shown here.")).to_be_visible()
    expect(page.locator(".chart canvas")).to_have_count(5)
    at_work(ledger, "s", emits="lines")
    at_work(ledger, "split", reads="lines")
    split = node(page, "step:split")
    expect(split).to_contain_text("seen ")
    wait_until_complete(page)
    expect(page.locator(".drawing path.reads")).to_have_count(1)  # its stream is known a second later
    box = split.bounding_box()
    emit(ledger, 30)
    expect(split).to_contain_text("30 behind")
    expect(page.locator(".edge-label")).to_contain_text("oldest ")
    expect(node(page, "stream:lines")).to_contain_text(re.compile(r"[1-9][\d.]* rows/s"))
    ack(ledger, take(ledger, "lines"))
    expect(split).not_to_contain_text("behind")
    expect(page.locator(".edge-label")).to_contain_text(re.compile(r"[1-9][\d.]* rows/s"))
    assert split.bounding_box() == box
    at_work(ledger, LONG, reads=LONG)
    at_work(ledger, "count", reads="words")
    at_work(ledger, "split", reads="lines", emits="words")
    expect(node(page, "step:count")).to_be_visible()
    expect(node(page, f"stream:{LONG}")).to_be_visible()
    assert names_are_whole(page)
    page.get_by_role("button", name="Freeze").click()
    expect(page.locator("[data-state=paused]")).to_be_visible()
