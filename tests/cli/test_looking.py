"""The command line, as a person and as a program meet it: looking."""

import base64
import json
import re

import numpy as np
import pyarrow as pa
import pytest
import redis

from acker import Topology
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.steps import held, step_registry
from acker.ledger.steps.step_registry import Step
from acker.store.client import Store
from acker.streams import Stream, StreamReader, StreamWriter
from acker.streams.log import holders, subscriptions
from acker.streams.log.subscriptions import Range
from api.models.answers import (
    Drops,
    Stored,
    StreamState,
    StuckPage,
    Topologies,
    TopologyState,
    Tree,
    Trees,
    Why,
)
from tests.helpers.builders import ledgers
from tests.helpers.builders.external import source
from tests.helpers.builders.streaming import emit
from tests.helpers.faces.cli import HOSTILE, Acker, good, one_error, positive_and_negative, track
from tests.helpers.faults.damages import DAMAGES, damage, two


def test_topologies_are_listed(acker: Acker, ledger: Ledger) -> None:
    open_ledger(Store(ledger.store.url), "other", ackers=0)
    track(ledger, "a", "b")
    shown = acker("topologies")
    assert shown.status == 0
    assert re.search(r"^words +2 +1 min 0 s +2 +2 ", shown.out, re.MULTILINE)
    listed = good(acker("topologies", "--json"))
    assert isinstance(listed, dict)
    other, words = listed["topologies"]
    assert (other["topology"], other["configuration"]["ackers"]) == ("other", 0)
    assert (words["topology"], words["configuration"]["message_timeout"], words["pending"]) == (
        "words",
        60.0,
        2,
    )


@pytest.mark.parametrize("how", DAMAGES)
def test_an_unreadable_topology_hides_no_other(acker: Acker, url: str, how: str) -> None:
    two(url)
    with damage(url, how):
        shown = acker("topologies")
        run = acker("topologies", "--json")
    assert (shown.status, run.status) == (5, 5), shown.error
    listed = json.loads(run.out)
    assert re.search(r"^damaged +(- +){6}critical: unreadable *$", shown.out, re.MULTILINE)
    assert re.search(r"^words +1 .*healthy *$", shown.out, re.MULTILINE)
    assert isinstance(listed, dict)
    [damaged], [words] = listed["unreadable"], listed["topologies"]
    assert damaged["topology"] == "damaged"
    assert f"topology 'damaged' cannot be read: {damaged['reason']}" in " ".join(shown.out.split())
    assert (words["topology"], words["pending"], words["health"]["troubles"]) == ("words", 0, [])


def test_the_worst_topologies_are_listed_first(acker: Acker, ledger: Ledger) -> None:
    ledger.fail(ledgers.Trees(20).track(ledger).anchors)
    open_ledger(ledger.store, "a-good-one", ackers=1)
    shown = acker("topologies").out.splitlines()
    assert shown[0] == "1 critical, 1 well"
    assert [line.split()[0] for line in shown[-2:]] == ["words", "a-good-one"]

    def listed(*options: str) -> list[str]:
        return [
            one["topology"] for one in json.loads(acker("topologies", *options, "--json").out)["topologies"]
        ]

    assert listed("--sort", "name") == ["a-good-one", "words"]
    assert listed("--state", "critical", "--name", "or") == ["words"]
    assert acker("topologies", "--state", "ill").status == 2


def test_an_empty_store_has_no_topologies(acker: Acker) -> None:
    assert acker("topologies").out == "no topologies\n"
    assert good(acker("topologies", "--json")) == {
        "topologies": [], "unreadable": [], "cursor": None,
        "counts": {"critical": 0, "look": 0, "muted": 0, "well": 0},
    }  # fmt: skip


def test_stats_are_those_of_the_ledger(acker: Acker, ledger: Ledger) -> None:
    anchors = track(ledger, "a", "b", "c")
    ledger.fail(anchors[:1])
    assert re.search(r"^failed +1$", acker("stats", "words").out, re.MULTILINE)
    stats = good(acker("stats", "words", "--json"))
    assert isinstance(stats, dict)
    assert stats["counters"] == ledger.counters()
    assert stats["unreadable"] == 0
    with redis.Redis.from_url(ledger.store.url) as raw:
        raw.hset(ledger.core.shards[0].counters, "unreadable", 3)
    assert re.search(r"^unreadable +3$", acker("stats", "words").out, re.MULTILINE)
    assert (stats["pending"], stats["outstanding"], stats["spouts"]) == (2, 3, ["lines"])
    buckets = {one["bucket"]: one["trees"] for one in stats["buckets"]}
    assert buckets == {"nursery": 2, "middle": 0, "oldest": 0, "expiring": 0}
    assert sum(shard["pending"] for shard in stats["shards"]) == 2
    assert set(stats["latency"]) == {"p50", "p95", "p99"}
    assert stats["steps"] == []


def test_programs_get_the_same_objects_as_over_http(acker: Acker, ledger: Ledger) -> None:
    first = int(track(ledger, "a", "b")[0])
    StreamWriter(ledger, "lines").write(pa.table({"line": ["a"]}))
    Stream(ledger, "lines").subscribe("split")
    ledger.run(step_registry.register(ledger.core, Step("split", "bolt", reads=("lines",))))
    for model, arguments in (
        (TopologyState, ("stats", "words")),
        (Topologies, ("topologies",)),
        (Stored, ("configure", "words")),
        (Trees, ("trees", "words")),
        (Tree, ("tree", "words", first)),
        (Why, ("why", "words", first, "--rows")),
        (StuckPage, ("stuck", "words")),
        (Drops, ("drops", "words")),
    ):
        found = good(acker(*arguments, "--json"))
        assert model.model_validate(found).model_dump(mode="json") == found
    listed = good(acker("streams", "words", "--json"))
    assert isinstance(listed, list)
    assert [StreamState.model_validate(one).model_dump(mode="json") for one in listed] == listed


def test_stats_list_the_steps_of_spark_jobs(acker: Acker, ledger: Ledger) -> None:
    split = Step("split", "bolt", "app-1", HOSTILE, "q1", batch=3, reads=("lines",), emits=("a", "b"))
    ledger.run(step_registry.register(ledger.core, split))
    shown = acker("stats", "words").out
    assert re.search(r"split +bolt +.*app-1.* 3 +- +0 +lines +a, b", shown)
    assert "\x1b[31m" not in shown
    stats = good(acker("stats", "words", "--json"))
    assert isinstance(stats, dict)
    [step] = stats["steps"]
    assert (step["name"], step["application"], step["batch"]) == ("split", HOSTILE, 3)
    assert step["emits"] == ["a", "b"]


def test_why_says_where_a_tree_is_and_who_has_taken_it(acker: Acker, ledger: Ledger) -> None:
    writer = StreamWriter(ledger, "lines")
    batch = writer.batch(pa.table({"line": ["a"]}))
    [anchor] = ids.new_anchors(1)
    ledger.track([anchor], batch.ids(), [HOSTILE], spout="lines")
    writer.publish(batch, np.array([anchor]))
    shown = acker("why", "words", anchor)
    assert re.search(r"^found +1 place, and these are all *$", shown.out, re.MULTILINE)
    assert "- in stream lines for its first subscription, published " in shown.out
    assert shown.out.endswith(" s ago, taken by nobody\n")
    slot = ledger.run(subscriptions.subscribe(ledger.core, "lines", "split"))
    ledger.run(subscriptions.claim(ledger.core, "lines", slot, "r1", 0, name="split"))
    ledger.store.send([holders.note_request(ledger.core, Range("lines", slot, "r1", 0, 1), HOSTILE, 17)])
    shown = acker("why", "words", anchor, "--rows")
    assert "1 row in stream lines for subscription split" in shown.out
    assert "batch 17" in shown.out
    assert "\x1b" not in shown.out
    assert re.search(r"^lines +split +query .*batch 17\) +1 +1 ", acker("stuck", "words").out, re.MULTILINE)
    process = held.Process("far", HOSTILE, 7, ("tally",), 1)
    ledger.run(held.note(ledger.core, "far", 1, process, np.array([(anchor, 7, 20_000, 0)], held.Edges)))
    stuck = acker("stuck", "words").out
    assert re.search(
        r"^tally on host far, process 7 \(.*\) +1 or more +20\d\d-\S+Z +20\d\d-\S+Z$", stuck, re.MULTILINE
    )
    assert "\x1b" not in stuck
    ledger.fail([anchor], "bad record")
    assert re.search(
        r"^answer +it has failed: bad record *$", acker("why", "words", anchor).out, re.MULTILINE
    )
    assert "expected" in one_error(acker("why", "words", "x"), 2)
    open_ledger(Store(ledger.store.url), "empty", ackers=1)
    assert acker("stuck", "empty").out == "nothing is stuck\n"
    assert acker("drops", "empty").out == "nothing was dropped\n"
    Stream(ledger, "lines").unsubscribe("split")
    assert re.fullmatch(
        r"stream lines dropped 1 segment \(1 rows\) at ..:..:.. UTC: subscription split was dropped *\n",
        acker("drops", "words").out,
    )
    assert "the store knows no such tree" in acker("why", "empty", anchor).out


def test_streams_show_how_far_behind_each_subscription_is(acker: Acker, ledger: Ledger) -> None:
    assert acker("streams", "words").out == "no streams\n"
    stream, writer = Stream(ledger, "lines"), StreamWriter(ledger, "lines")
    writer.write(pa.table({"line": ["a"] * 1200}))
    assert re.search(
        r"^lines +managed +1 .* \(waits for one\) +1,200 +1,200 +0 ", acker("streams", "words").out, re.M
    )
    stream.subscribe("split")
    stream.subscribe("audit")
    writer.write(pa.table({"line": ["b"]}))
    StreamReader(ledger, "lines", "split").ack_all()
    assert re.search(r"^ +audit +1 +1 +0 ", acker("streams", "words").out, re.MULTILINE)
    found = good(acker("streams", "words", "--json"))
    assert isinstance(found, list)
    [listed] = found
    assert (listed["stream"], listed["segments"], listed["dropped"]) == ("lines", 1, 0)
    split, audit = listed["subscriptions"]
    assert (split["subscription"], split["rows_acked"], split["rows_behind"]) == ("split", 1201, 0)
    assert (audit["subscription"], audit["rows_published"], audit["rows_behind"]) == ("audit", 1, 1)
    assert split["unread_age"] is None
    assert audit["unread_age"] >= 0
    assert acker("unsubscribe", "words", "lines", "audit", "--ack").out == "1 segment acked\n"
    assert "no subscription 'audit'" in one_error(acker("unsubscribe", "words", "lines", "audit"), 4)
    assert good(acker("unsubscribe", "words", "lines", "split", "--json")) == {"segments": 0}


def test_of_an_external_stream_the_rows_that_were_not_received_are_behind(
    acker: Acker, ledger: Ledger
) -> None:
    with Topology(ledger.store.url, "words") as topology:
        items = topology.incoming("items", subscription="count")
        [first, *_] = source(topology, 1, rows=4)
        topology.flush()
        items.ack(items.extract_many([first]))
        topology.flush()
    shown = acker("streams", "words").out
    assert re.search(r"^items +external +1 .* count +4 +3 +0 ", shown, re.M)


def test_readers_are_shown_and_what_a_dead_one_has_is_given_back(acker: Acker, ledger: Ledger) -> None:
    StreamWriter(ledger, "lines").write(pa.table({"line": ["a"]}))
    Stream(ledger, "lines").subscribe("split")
    assert acker("readers", "words", "lines").out == "no readers\n"
    slot = ledger.run(subscriptions.find(ledger.core, "lines", "split"))
    assert ledger.run(subscriptions.claim(ledger.core, "lines", slot, "5f0c", 0, name="split")) == 1
    assert re.search(r"^split +5f0c +\d+ \w+ ago$", acker("readers", "words", "lines").out, re.MULTILINE)
    listed = good(acker("readers", "words", "lines", "--json"))
    assert isinstance(listed, list)
    [shown] = listed
    assert (shown["subscription"], shown["reader"]) == ("split", "5f0c")
    assert "no subscription 'default'" in one_error(acker("give-back", "words", "lines", "5f0c"), 4)
    done = acker("give-back", "words", "lines", "5f0c", "--subscription", "split")
    assert done.out == "1 segment given back\n"
    assert StreamReader(ledger, "lines", "split").ack_all() == 1


def test_a_tree_is_shown_by_its_anchor_negative_or_not(acker: Acker, ledger: Ledger) -> None:
    for anchor in positive_and_negative(ledger):
        for arguments in (
            ("words", anchor, "--json"),
            ("--json", "words", anchor),
            ("--json", "words", "--", anchor),
        ):
            tree = good(acker("tree", *arguments))
            assert isinstance(tree, dict)
            assert tree["anchor"] == str(anchor)
            assert isinstance(tree["ack_value"], str)
            assert (tree["state"], tree["spout"], tree["message_id"]) == ("pending", "lines", "m")
        assert re.search(rf"^anchor +{anchor}\b", acker("tree", "words", anchor).out, re.MULTILINE)


def test_an_unknown_tree_is_an_error(acker: Acker, ledger: Ledger) -> None:
    assert "knows no tree -4096" in one_error(acker("tree", ledger.config.name, "-4096"), 4)


def test_trees_are_listed_page_by_page(acker: Acker, ledger: Ledger) -> None:
    expected = [str(anchor) for anchor in track(ledger, *(f"m{number}" for number in range(7))).tolist()]
    found, cursor = [], None
    for _ in range(4):
        page = good(
            acker("trees", "words", "--json", "--limit", 2, *(["--cursor", cursor] if cursor else []))
        )
        assert isinstance(page, dict)
        found += [tree["anchor"] for tree in page["trees"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert found == expected
    shown = acker("trees", "words", "--limit", 2)
    assert expected[1] in shown.out
    assert expected[2] not in shown.out
    assert re.fullmatch(r"more: --cursor \S+\n", shown.error)


def test_trees_are_filtered(acker: Acker, ledger: Ledger) -> None:
    anchors = track(ledger, "a", "b")

    def count(*filters: object) -> int:
        page = good(acker("trees", "words", "--json", *filters))
        assert isinstance(page, dict)
        return len(page["trees"])

    shard = ids.shard_of(ids.slab_of(int(anchors[0])), 2)
    assert (
        count() == count("--bucket", "nursery") == count("--spout", "lines") == count("--shard", shard) == 2
    )
    assert count("--bucket", "oldest") == count("--shard", 1 - shard) == count("--older-than", 3600) == 0
    assert count("--message-id", "a") == count("--message-id-base64", base64.b64encode(b"b").decode()) == 1
    assert acker("trees", "words", "--bucket", "oldest").out == "no trees\n"
    [untaken] = emit(ledger, 1).tolist()
    waiting = acker("trees", "words", "--bucket", "waiting").out
    assert re.search(rf"{untaken} .* 2[34] h \d+ min or more ", waiting)
    for command in ("tree", "why"):
        assert re.search(
            "clock stands still: waits for the first subscription of stream lines since 20.* at the earliest",
            acker(command, "words", untaken).out,
        )


@pytest.mark.parametrize(
    ("message_id", "text"),
    [(b"\xff\x00", None), (b"", ""), ("\u00e9".encode(), "\u00e9"), (HOSTILE.encode(), HOSTILE)],
)
def test_json_keeps_ids_whole(acker: Acker, ledger: Ledger, message_id: bytes, text: str | None) -> None:
    track(ledger, message_id)
    run = acker("trees", "words", "--json")
    assert run.out.isascii()
    assert re.search(r"[\x00-\x09\x0b-\x1f\x7f]", run.out) is None
    page = good(run)
    assert isinstance(page, dict)
    assert page["trees"][0]["message_id"] == text
    assert base64.b64decode(page["trees"][0]["message_id_base64"]) == message_id


def test_hostile_text_reaches_no_terminal_as_it_is(acker: Acker, ledger: Ledger) -> None:
    anchors = track(ledger, HOSTILE)
    waiting = ids.new_anchors(1)
    ledger.fail(waiting, HOSTILE)
    shown = [
        acker("trees", "words"),
        acker("tree", "words", anchors[0]),
        acker("tree", "words", waiting[0]),
        acker("tree", "words", HOSTILE),
        acker("trees", "words", "--bucket", HOSTILE),
        acker("stats", HOSTILE),
        acker(HOSTILE),
    ]
    for run in shown:
        assert (run.out + run.error).replace("\n", "").isprintable()
    for run in shown[:3]:
        assert r"\x1b[31mred[/]\x07\x7f\u202e[bold]" in run.out


def test_a_client_whose_script_held_the_store_is_named(acker: Acker, ledger: Ledger, url: str) -> None:
    assert "no script held the store" in acker("health", "words", "--scripts").out
    spin = "local t = redis.call('TIME')[1] + 2 repeat local now = redis.call('TIME')[1] + 0 until now >= t"
    # In a script of Valkey the time stands still for five seconds, the timeout that a client has by itself.
    with redis.Redis.from_url(url, socket_timeout=60) as client:
        client.client_setname("batch-job")
        client.eval(spin, 0)
    assert re.search(
        r"a script of client 127\.0\.0\.1:\d+ \(batch-job\) held the store for ",
        acker("health", "words", "--scripts").out,
    )
    [script] = good(acker("health", "words", "--scripts", "--json"))["slow_scripts"]  # type: ignore[index]
    assert script["name"] == "batch-job"
