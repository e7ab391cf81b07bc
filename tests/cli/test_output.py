"""The texts and tables that commands print."""

from io import StringIO

import pytest
from rich.console import Console

from acker.cli.shared.output import duration, one_line, printable, row, table
from acker.ledger.fields import message_id_fields


def test_printable_text_stays_and_the_rest_is_escaped() -> None:
    assert printable("plain: é 語 [x]") == "plain: é 語 [x]"
    assert printable(b"\xff\n\x1b[0m") == r"\xff\n\x1b[0m"
    assert printable("\u2028\ufeff\U000e0001") == r"\u2028\ufeff\U000e0001"
    assert one_line("a\nb\x07") == r"a b\x07"


def test_ids_stay_on_one_line_in_a_narrow_terminal() -> None:
    made = table("=>anchor", "state", "spout", "message id", ">age", ">time left", ">shard", "bucket")
    anchors = ["-4611686018427387903", "4611686018427387905"]
    for anchor in anchors:
        row(
            made,
            anchor,
            "waiting, failed",
            "sentences",
            "poem.txt:1",
            "1 h 3 min",
            "2 h 3 min to 3 h 2 min",
            0,
            "nursery",
        )
    written = StringIO()
    Console(file=written, width=80).print(made)
    lines = written.getvalue().splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert [line.split()[0] for line in lines if line.strip().startswith(tuple("-4"))][:2] == anchors


def test_no_message_id_is_null() -> None:
    assert message_id_fields(None) == {"message_id": None, "message_id_base64": None}


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"), (0.0123, "12 ms"), (5.0, "5.0 s"), (61.2, "1 min 1 s"), (7384.0, "2 h 3 min"),
        (200_000.0, "2 d 7 h"),
    ],
)  # fmt: skip
def test_durations_are_for_people(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown
