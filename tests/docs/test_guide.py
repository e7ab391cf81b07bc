"""The programs that the guide begins with, run as they are printed."""

import ast
import builtins
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from acker import Topology
from acker.testing import Transport
from tests.helpers.guide import DOCS


def chapter(page: str, heading: str) -> str:
    """The text of a page from a heading on, up to the next one of its level; "" is the whole page."""
    text = (DOCS / page).read_text()
    return re.split(r"^## ", text.partition(f"## {heading}\n")[2], flags=re.MULTILINE)[0] if heading else text


def printed(
    page: str, url: str, directory: Path, before: str = "", after: str = "", heading: str = ""
) -> Path:
    """The first program of a page, or of a chapter of it, as a file; the store is behind `url`."""
    [program, *_] = re.findall(r"```python\n(.*?)```", chapter(page, heading), re.DOTALL)
    assert "redis://localhost" in program
    file = directory / "program.py"
    file.write_text(before + re.sub(r"redis://localhost(:6379)?", url, program) + after)
    return file


# What the pipeline of the README leaves to its reader.
SHOP = """
import json
from pathlib import Path
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
ORDER, PRICED = "id STRING, sku STRING", "id STRING, price DOUBLE"
PRICES, stored = {"apple": 0.5, "pear": 0.75}, {}
Path("orders").mkdir()
Path("orders/1.json").write_text(
    "\\n".join(json.dumps({"id": str(n), "sku": ["apple", "pear", "?"][n % 3]}) for n in range(30))
)

def look_up(order):
    return order["id"], PRICES[order["sku"]]

def upsert(batch):
    stored.update((row.id, row.price) for row in batch.collect())
"""
VERDICT = """
while len(stored) < 20 and all(query.isActive for query in spark.streams.active):
    spark.streams.active[0].awaitTermination(1)
for query in spark.streams.active:
    query.processAllAvailable()
    query.stop()
settled = acker.settle("orders")
print(len(stored), sum(stored.values()), settled.acked, settled.replayed)
"""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_pipeline_of_the_readme_fails_records(valkey_url: str, tmp_path: Path, java_home: Path) -> None:
    program = printed("../README.md", valkey_url, tmp_path, SHOP, VERDICT)
    run = subprocess.run(
        [sys.executable, program],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
        env={**os.environ, "JAVA_HOME": str(java_home)},
        check=False,
    )
    assert run.stdout.splitlines()[-1:] == ["20 12.5 20 10"], run.stderr


def test_the_loop_of_the_guide_goes_on_after_errors_and_while_no_row_comes(
    valkey_url: str, tmp_path: Path
) -> None:
    transport, program = Transport(3, errors=0.5, delayed=0.5), printed("transports.md", valkey_url, tmp_path)
    counts, consumer = iter(range(100_000)), transport.consumer("count")
    consumer.subscribe(["items"])
    names = {
        "consumer": consumer, "producer": transport.producer(), "running": True, "split": bytes.split,
        "due": lambda: next(counts) % 3 == 0,
    }  # fmt: skip
    with Topology(valkey_url, "shop") as topology:
        items = transport.stamped(topology, "items", "count", [f"a{n} b{n}" for n in range(20)])
        topology.incoming("words", subscription="words")
        transport.run(exec, compile(program.read_text(), "transports.md", "exec"), names)
        found = sorted((word.decode(), row.decode()) for word, [row] in items.sent("words"))
    names["topology"].close()  # type: ignore[attr-defined]
    assert found == sorted((f"{word}{n}", f"a{n} b{n}") for n in range(20) for word in "ab")


def test_the_function_of_the_guide_answers(valkey_url: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, printed("lines.md", valkey_url, tmp_path, heading="Functions")],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert run.stdout.splitlines() == ["2", "[2, 3]"]


def test_the_transaction_of_the_guide_is_acked(valkey_url: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, printed("collectors.md", valkey_url, tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert sorted(run.stdout.splitlines()) == [f"order-{n} acked" for n in range(3)]


def test_the_line_of_the_guide_counts(valkey_url: str, tmp_path: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-u", printed("lines.md", valkey_url, tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert program.stdout is not None
        assert sorted(program.stdout.readline() for _ in range(2)) == ["2\n", "3\n"]
        program.communicate("\n", timeout=60)
        assert program.returncode == 0
    finally:
        program.kill()
        program.wait()


@pytest.mark.parametrize("of", ["lines", "functions"])
def test_later_examples_use_no_names_but_those_of_earlier_ones_and_of_a_sentence(of: str) -> None:
    functions = chapter("lines.md", "Functions")
    text = functions if of == "functions" else (DOCS / "lines.md").read_text().removesuffix(functions)
    [sentence] = re.findall(
        rf"Later examples of\s+{of} go on from this one\. In them (.*?)\.\n", text, re.DOTALL
    )
    names = set(dir(builtins)) | set(re.findall(r"`(\w+)`(?: is)? (?:an?|the)\b", sentence))
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(programs) > 2
    for program in programs:
        used = set[str]()
        for node in ast.walk(ast.parse(program)):
            if isinstance(node, ast.Name):
                (used if isinstance(node.ctx, ast.Load) else names).add(node.id)
            elif isinstance(node, ast.arg):
                names.add(node.arg)
            elif isinstance(node, ast.alias):
                names.add(node.asname or node.name)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
        assert used <= names


@pytest.mark.parametrize("words", ["replay", "exactly once", "stuck", "duplicate", "Kafka"])
def test_the_pages_have_the_words_that_a_reader_searches_for(words: str) -> None:
    sentences = re.compile(words.replace(" ", r"\W+"), re.IGNORECASE)
    files = [DOCS.parent / "README.md", *DOCS.rglob("*.md")]
    pages = [page for page in files if sentences.search(page.read_text())]
    assert len(pages) >= 2
