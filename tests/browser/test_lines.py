"""Lines and functions: what waits in gathers, how far a request is, and what became of calls."""

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from playwright.sync_api import Page, expect

from acker.collectors.topology import Topology
from acker.drpc import LinearDRPC
from acker.drpc.calling.answer_listener import Call
from acker.errors import DRPCFailed, FailedException
from acker.inspect.operate.removal import remove
from acker.lines import Gather, Line, Out
from acker.streams import StreamReader
from acker.streams.log import subscriptions
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.workers.steps import FunctionStep
from acker.workers.worker import Worker
from tests.helpers.builders.counting import Count, N, counting
from tests.helpers.builders.line_job import Job
from tests.helpers.faces.api import OPERATE, READ, TOKENS, serving
from tests.helpers.faces.browser import NewPage, World

pytestmark = pytest.mark.slow

WIDE = {"viewport": {"width": 1440, "height": 900}, "color_scheme": "dark"}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def fits(page: Page, axe: Callable[[Page], list[str]]) -> None:
    width = page.viewport_size["width"]  # type: ignore[index]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert axe(page) == []


@pytest.mark.parametrize("options", [WIDE, PHONE])
def test_a_request_of_a_line_is_followed_from_gather_to_gather(
    new_page: NewPage, world: World, axe: Callable[[Page], list[str]], options: dict[str, object]
) -> None:
    ledger = world.ledger("gathering", ackers=1, message_timeout=3600.0)
    try:
        page = new_page("/t/gathering/lines", **options)
        expect(page.get_by_text("The topology has no line.")).to_be_visible()
        fits(page, axe)
        job = Job(ledger)
        # The first section is not over without this subscription.
        ledger.run(subscriptions.subscribe(ledger.core, "asks", "other"))
        roots = job.ask(3)
        job.workers["fan"].work()
        gather = page.get_by_role("region", name="Gathers of lines").locator("tbody tr").first
        expect(gather.locator("td[data-title=Rows]")).to_have_text("3")
        expect(gather.locator("td[data-title=Tasks]")).to_have_text("2, by i")
        fits(page, axe)
        gather.get_by_role("link").click()
        sections = page.locator(".steps li")
        expect(sections).to_have_count(3)
        expect(sections.nth(0)).to_contain_text("under way")
        expect(sections.nth(0)).to_contain_text("3 rows of its group wait there, for tasks 0 and 1")
        expect(sections.nth(1)).to_contain_text("waits for the section before")
        # Where its tuples are: the waiting ones are of the tree of the next section.
        sections.nth(1).get_by_role("button", name="where its tuples are").click()
        expect(page).to_have_url(re.compile(r"\?section=2$"))
        where = page.get_by_role("region", name="Where it is")
        expect(where).to_contain_text("Complete: these 2 places have all of its tuples. It goes on when all")
        fits(page, axe)
        other = StreamReader(ledger, "asks", "other")
        assert len(list(other.rows())) == 1
        other.ack_all()  # the service coordinates
        expect(sections.nth(0)).to_contain_text("Its rows have gone on")
        expect(sections.nth(1)).to_contain_text("under way")
        # Any of its trees, and any of their anchors, lead to it.
        page.get_by_role("searchbox").fill(str(roots.anchors(2)[0]))
        page.keyboard.press("Enter")
        page.get_by_role("link", name="how far its request is").click()
        sections.nth(1).get_by_role("link", name="its tree").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text(f"Tree {roots.anchors(2)[0]}")
        page.get_by_role("link", name="its request, of which this is section 2").click()
        expect(page.get_by_role("region", name="Facts")).to_contain_text("r0")
        ledger.fail(roots.anchors(2), "no such price")
        expect(sections.nth(1)).to_contain_text("no such price")
        expect(page.get_by_role("region", name="Facts")).to_contain_text("in section counts: no such price")
        fits(page, axe)
        page.goto(f"{world.address}/t/gathering/lines/1")
        expect(page.get_by_text("This is the anchor of no line")).to_be_visible()
    finally:
        ledger.run(remove("gathering", force=True))


def begun(topology: Topology, args: object) -> Call:
    call = topology.drpc("count").begin(args)
    call.begun.result()
    return call


@pytest.mark.parametrize("options", [WIDE, PHONE])
def test_a_function_tells_what_became_of_its_calls_and_a_call_is_cancelled(
    new_page: NewPage, world: World, axe: Callable[[Page], list[str]], options: dict[str, object]
) -> None:
    with Topology(world.url, "calls", ackers=1, message_timeout=3600.0) as topology:
        try:
            counting(max_pending=50).register(topology)
            call = begun(topology, 3)
            page = new_page("/functions", **options)
            card = page.get_by_role("article", name="count")
            expect(card).to_contain_text("No worker is alive.")
            expect(card).to_contain_text("1 of 50")
            fits(page, axe)
            card.get_by_role("link", name="count").click()
            expect(page.get_by_text("acker drpc work MODULE:NAME --topology calls")).to_be_visible()
            fits(page, axe)
            page.get_by_role("link", name=call.request).click()
            steps = page.locator(".steps li")
            expect(steps.nth(0)).to_contain_text("waits for a worker")
            expect(steps.nth(0)).to_contain_text("1 row to do")
            expect(steps.nth(1)).to_contain_text("waits for all of it")
            fits(page, axe)
            page.get_by_role("button", name="Cancel…").click()
            dialog = page.get_by_role("dialog", name="Cancel this call?")
            page.keyboard.press("Escape")
            expect(dialog).to_have_count(0)
            assert not call.future.done()
            page.get_by_role("button", name="Cancel…").click()
            dialog.get_by_role("button", name="Cancel the call").click()
            expect(page.get_by_text("The call was cancelled.")).to_be_visible()
            expect(page.get_by_role("region", name="Facts")).to_contain_text("it was cancelled")
            expect(page.get_by_role("button", name="Cancel…")).to_be_disabled()
            with pytest.raises(DRPCFailed, match="cancelled"):
                call.future.result()
            with counting(max_pending=50).work(topology):
                good, bad = begun(topology, 3), begun(topology, "bad")
                assert good.future.result() == 3
                with pytest.raises(DRPCFailed):
                    bad.future.result()
                page.goto(f"{world.address}/functions/count?state=ended")
                expect(page.get_by_text("at work")).to_be_visible()
            causes = page.get_by_role("region", name="Causes").locator("tbody tr")
            expect(causes).to_have_count(2)
            expect(causes.filter(has_text="bad arguments")).to_contain_text("fan")
            figures = page.get_by_label("Calls, 10 minutes")
            expect(figures).to_contain_text(re.compile("answered1failed2timed out0p50"))
            fits(page, axe)
            # The box of the topology finds a call by its id, too, as the one here does.
            page.goto(f"{world.address}/t/calls/find?id={good.request}")
            page.get_by_role("region", name="Call of this id").get_by_role("link").click()
            page.get_by_role("button", name="Show it").click()
            expect(page.get_by_role("region", name="Result").locator("pre")).to_have_text("3")
            page.goto(f"{world.address}/functions/count")
            page.get_by_placeholder("Id of a request").fill(bad.request)
            page.keyboard.press("Enter")
            expect(steps.nth(0)).to_contain_text("failed")
            expect(page.get_by_role("region", name="Facts")).to_contain_text("bad arguments")
            fits(page, axe)
            page.goto(f"{world.address}/functions/count/{'0' * 32}")
            expect(page.get_by_text("The function knows no such call")).to_be_visible()
            page.goto(f"{world.address}/functions/nobody")
            expect(page.get_by_text("The store has no function of this name.")).to_be_visible()
        finally:
            topology.ledger.run(remove("calls", force=True))


def test_only_an_operator_cancels_and_a_broken_service_is_told(new_page: NewPage, world: World) -> None:
    with Topology(world.url, "calls", ackers=1, message_timeout=3600.0) as topology:
        try:
            counting().register(topology)
            call = begun(topology, 3)
            with serving(
                world.url, tokens=f"{TOKENS} call:token-that-only-calls", log_level="error"
            ) as address:
                page = new_page(f"/functions/count/{call.request}", address)
                field, use = page.get_by_label("Token"), page.get_by_role("button", name="Use token")
                for token in (READ, "token-that-only-calls"):
                    field.fill(token)
                    use.click()
                    expect(page.locator(".steps li")).to_have_count(2)
                    cancel = page.get_by_role("button", name="Cancel…")
                    expect(cancel).to_be_disabled()
                    expect(cancel).to_have_accessible_description(re.compile("Your token allows no changes"))
                    page.get_by_role("button", name="Forget token").click()
                field.fill(OPERATE)
                use.click()
                expect(page.get_by_role("button", name="Cancel…")).to_be_enabled()
            expect(page.get_by_role("alert")).to_contain_text("The service does not answer")
            expect(page.locator(".freshness")).to_contain_text("last update")
            expect(page.locator(".steps li")).to_have_count(2)  # what was shown stays
        finally:
            topology.ledger.run(remove("calls", force=True))


LONG = "IllegalStateException: /a/path/without/any/space" + "/and/so/on" * 40


@pytest.mark.parametrize("options", [WIDE, PHONE])
def test_in_many_lines_what_needs_a_look_is_found(
    new_page: NewPage, world: World, axe: Callable[[Page], list[str]], options: dict[str, object]
) -> None:
    ledger = world.ledger("crowded", ackers=1, message_timeout=3600.0)
    try:
        for line in range(10):
            streams = [f"a-stream-with-a-name-of-some-length-{line}-{place}" for place in range(7)]
            Line(ledger, f"line-{line}", [Gather(stream) for stream in streams])
        Line(ledger, "wide", [Gather("shares", tasks=64, by=("n",)), Gather("sums")])

        def share(row: dict[str, Any], out: Out) -> None:
            for n in range(2_000):
                out.emit("shares", {"n": n})
            out.emit("shraes", {"n": row["id"]})

        worker = Worker(ledger, FunctionStep("share", "orders", share))
        worker.work()
        spout = StreamSpout(ledger, SpoutOptions("orders", "orders", "id", line="wide"))
        [roots] = spout.write(pa.table({"id": [1]}))
        worker.work()
        page = new_page("/t/crowded/lines", **options)
        unread = page.get_by_role("region", name="Streams that nobody reads").locator("tbody tr")
        expect(unread).to_have_count(1)
        expect(unread).to_contain_text("shraes")
        expect(unread.locator("td[data-title=Rows]")).to_have_text("1")
        gathers = page.get_by_role("region", name="Gathers of lines").locator("tbody tr")
        expect(gathers).to_have_count(72)
        page.get_by_role("button", name="Where rows wait").click()
        expect(gathers).to_have_count(1)
        expect(page).to_have_url(re.compile(r"\?shown=waiting$"))
        fits(page, axe)
        gathers.get_by_role("link").click()
        sections = page.locator(".steps li")
        expect(sections.nth(0)).to_contain_text("2,000 rows of its group wait there, for tasks 0 to 63")
        ledger.fail(roots.anchors(1), LONG)  # the service coordinates
        expect(sections.nth(2)).to_contain_text("It failed with the one that ends in shares.")
        expect(sections.filter(has_text="IllegalStateException")).to_have_count(1)
        expect(page.get_by_role("region", name="Facts")).to_contain_text(LONG)
        fits(page, axe)
    finally:
        ledger.run(remove("crowded", force=True))


@pytest.mark.parametrize("options", [WIDE, PHONE])
def test_many_causes_do_not_hide_the_calls_of_a_function(
    new_page: NewPage, world: World, axe: Callable[[Page], list[str]], options: dict[str, object]
) -> None:
    def fail(row: dict[str, Any], _: object) -> None:
        raise FailedException(row["args"])

    function = LinearDRPC("often-fails").step("fan", fail, columns=N).gather("count", Count)
    with Topology(world.url, "many-causes", ackers=1, message_timeout=3600.0) as topology:
        try:
            with function.work(topology):
                asked = [f"{name} {LONG}" for name in ("one", "two", "three", "four", "five", "six", "seven")]
                topology.drpc("often-fails").execute_many(asked, return_exceptions=True)
            page = new_page("/functions/often-fails?state=ended", **options)
            causes = page.get_by_role("region", name="Causes").locator("tbody tr")
            expect(causes).to_have_count(5)
            fits(page, axe)
            page.get_by_role("button", name="Show 2 more causes").click()
            expect(causes).to_have_count(7)
            fits(page, axe)
            page.get_by_role("button", name="Show fewer").click()
            expect(causes).to_have_count(5)
            page.get_by_role("region", name="Answered last").get_by_role("link").first.click()
            expect(page.get_by_role("region", name="Facts")).to_contain_text(LONG)
            fits(page, axe)
            page.goto(f"{world.address}/functions/nobody/{'0' * 32}")
            expect(page.get_by_text("The store has no function of this name.")).to_be_visible()
            page.locator("main").get_by_role("link", name="All functions").click()
            expect(page.get_by_role("heading", level=1)).to_have_text("Functions")
        finally:
            topology.ledger.run(remove("many-causes", force=True))
