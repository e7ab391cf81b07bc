"""Physical plans as text, which is all that Spark Connect tells of them."""

import pytest

from acker.spark.queries.stateful_operators import of_text

SCAN = "MicroBatchScan[line#1, _acker#2L] (Python)"


@pytest.mark.parametrize(
    ("plan", "operators", "tracked"),
    [
        (f"*(1) Project [line#1]\n+- {SCAN}", {}, ""),
        (
            f"StreamingGlobalLimit 3, state [\n+- Exchange\n   +- StreamingLocalLimit 3\n      +- {SCAN}",
            {"*": "limit"},
            "",
        ),
        (
            "StreamingDeduplicate [line#1]\n"
            "+- Exchange hashpartitioning(line#1, 2)\n"
            "   +- *(2) Union\n"
            "      :- *(2) LocalLimit 5\n"
            "      :  +- MapInArrow acker_track(value#39)#34, [value#35], false\n"
            "      :     +- *(1) Project [value#39]\n"
            "      :        +- StreamingGlobalLimit 2\n"
            "      :           +- FileScan text [value#39]\n"
            f"      +- *(2) Project [value#32]\n         +- {SCAN}",
            {"*": "dropDuplicates"},
            "dropDuplicates",
        ),
        (
            "MapInArrow acker_track(value#39)#34, [value#35], false\n"
            "+- StateStoreSave [window#52], state info [\n   +- FileScan text [StreamingDeduplicate#39]",
            {},
            "",
        ),
        (
            f"TransformWithStateInPySpark f(x)\n:- Sort\n:  +- {SCAN}\n+- LocalTableScan",
            {"*": "transformWithState"},
            "",
        ),
        (f"Union\n:- StateStoreSave [a]\n:  +- FileScan text\n+- {SCAN}", {}, ""),
    ],
)  # fmt: skip
def test_a_plan_tells_which_operators_keep_state_over_streams(
    plan: str, operators: dict[str, str], tracked: str
) -> None:
    found = of_text("== Physical Plan ==\n" + plan + "\n\n")
    assert found is not None
    assert (dict(found.operators), found.tracked) == (operators, tracked)


def test_what_is_no_plan_tells_nothing() -> None:
    assert of_text("No physical plan. Waiting for data.\n") is None
