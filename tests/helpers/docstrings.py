"""Examples in docstrings, run with the names that they use.

python -m tests.helpers.docstrings URL     # the examples that need a Spark session
"""

import asyncio
import contextlib
import doctest
import inspect
import io
import pkgutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from acker import AsyncTopology, Topology
from acker.drpc import LinearDRPC
from acker.lines import Gather, Line
from acker.spark import Acker
from acker.streams import StreamReader, StreamWriter
from acker.testing import Transport, run_bolt

SPARK = (
    "acker.spark:Acker",
    "acker.spark:Acker.track",
    "acker.spark:Acker.bolt",
    "acker.spark:Collector.emit",
    "acker.spark:Collector.map",
    "acker.spark:Collector.newest",
    "acker.testing:run_bolt",
)
"""The examples for Spark jobs."""


def run(name: str, names: dict[str, Any]) -> str:
    """Runs the example in the docstring of an object.

    Args:
        name: The object, `module:qualified.name`.
        names: Objects that the example uses, by their names in it.

    Returns:
        The differences between the output and the docstring; "" if there are none.
    """
    docstring = inspect.getdoc(pkgutil.resolve_name(name)) or ""
    test = doctest.DocTestParser().get_doctest(docstring, names, name, name, 0)
    assert test.examples, f"{name} has no example"
    report = io.StringIO()
    with contextlib.redirect_stdout(report):
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.write)
    return report.getvalue()


def plain_names(url: str, topology: Topology) -> dict[str, Any]:
    """Returns the names in examples for plain Python processes."""
    return {
        "URL": url,
        "AsyncTopology": AsyncTopology,
        "asyncio": asyncio,
        "topology": topology,
        "spout": topology.spout("orders"),
        "bolt": topology.bolt("price"),
        "Gather": Gather,
        "Line": Line,
        "LinearDRPC": LinearDRPC,
        "StreamReader": StreamReader,
        "StreamWriter": StreamWriter,
        "Topology": Topology,
        "Transport": Transport,
        "pa": pa,
    }


def spark_names(url: str, spark: SparkSession, directory: Path) -> dict[str, Any]:
    """Returns the names in examples for Spark jobs; their files lie in a directory."""
    (directory / "orders").mkdir()
    (directory / "orders" / "1.json").write_text('{"id": "order-1"}\n{"id": "order-2"}\n')
    acker = Acker(url, "tried", message_timeout=600.0)
    return {
        "URL": url,
        "Acker": Acker,
        "acker": acker,
        "look_up": lambda order: (order["id"], 0.5),
        "price": acker.bolt("price")(lambda batch, collector: None),
        "files": spark.readStream.schema("id string").json(str(directory / "orders")),
        "run_bolt": run_bolt,
        "spark": spark,
    }


def main(url: str) -> None:
    """Runs the examples for Spark jobs in one session; prints the differences."""
    warnings.simplefilter("ignore")
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    for name in SPARK:
        with tempfile.TemporaryDirectory() as directory:
            sys.stdout.write(run(name, spark_names(url, spark, Path(directory))))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
