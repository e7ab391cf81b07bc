"""Help, the options that all commands share, completion, and output in any encoding."""

import io
import json
import sys

import pyarrow as pa
import pytest

from acker import cli
from acker.ledger.client import Ledger
from acker.streams import StreamWriter
from tests.helpers.faces.cli import Acker, commands, good, one_error, track


@pytest.fixture
def url(valkey_url: str) -> str:
    """Both kinds of servers would say the same."""
    return valkey_url


@pytest.mark.parametrize("columns", [80, 120])
def test_help_is_as_wide_as_the_screen(acker: Acker, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    widest = 0
    for command in ("", "drpc", *commands()):
        usage, *lines = acker(*command.split(), "--help").out.splitlines()
        assert usage.startswith("Usage: acker")
        assert not [line for line in lines if len(line) > columns or line.endswith(("...", "\u2026"))]
        widest = max(widest, *map(len, lines))
    assert widest > columns - 10
    text = " ".join(acker("--help").out.split())
    for name, one in commands().items():
        sentence = " ".join(one.help.split("\n\n")[0].split())
        assert " " in name or f" {name} {sentence.split('. ')[0]}" in text


def test_without_a_command_help_is_shown_and_the_status_is_2(acker: Acker) -> None:
    for words in ((), ("drpc",)):
        run = acker(*words)
        assert (run.status, run.error) == (2, "")
        assert run.out == acker(*words, "--help").out


def test_shared_options_stand_before_the_command_or_after_it(
    acker: Acker, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    [anchor] = track(ledger, "m")
    monkeypatch.setenv("ACKER_URL", "redis://127.0.0.1:1/0")
    url, nowhere = ledger.store.url, "redis://127.0.0.1:2/0"
    for words in (
        ("--url", url, "--json", "tree", "words", anchor),
        ("--json", "tree", "--url", url, "words", anchor),
        ("--url", nowhere, "--timeout", "0.2", "tree", "words", anchor, "--json", "--url", url),
    ):
        found = good(acker(*words))
        assert isinstance(found, dict)
        assert found["anchor"] == str(anchor)
    assert good(acker("--url", url, "drpc", "--json", "list")) == []
    assert nowhere in one_error(acker("--url", nowhere, "drpc", "--timeout", "0.2", "list"), 3)
    assert "--url" in one_error(acker("--url", url, "server"), 2)
    assert "timeout" in one_error(acker("--timeout", "x", "--url", url, "topologies"), 2)


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("acker sta", ["stats"]),
        ("acker stats wo", ["words"]),
        ("acker --url {url} stats ", ["words"]),
        ("acker readers words li", ["lines"]),
        ("acker stats --url redis://127.0.0.1:1/0 wo", []),
        ("acker drpc sh", ["show"]),
        ("acker dead-letters words --gr", ["--groups"]),
    ],
)
def test_a_shell_completes_commands_options_and_names(
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    typed: str,
    completed: list[str],
) -> None:
    StreamWriter(ledger, "lines").write(pa.table({"n": [1]}))
    typed = typed.format(url=ledger.store.url)
    for name, value in {
        "_ACKER_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split(" ")) - 1),
        "ACKER_URL": ledger.store.url,
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        cli.main([])
    assert capsys.readouterr().out.split() == completed


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_the_encoding_of_the_output_lacks_is_shown_escaped(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setenv("ACKER_URL", ledger.store.url)
    [anchor] = track(ledger, "Zo\u00eb \u8a9e")

    def shown(*words: str) -> tuple[str, str]:
        streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2)]
        monkeypatch.setattr(sys, "stdout", streams[0])
        monkeypatch.setattr(sys, "stderr", streams[1])
        with pytest.raises(SystemExit):
            cli.main(list(words))
        for one in streams:
            one.flush()
        out, error = (one.buffer.getvalue().decode(encoding) for one in streams)
        monkeypatch.undo()
        return out, error

    known = {"ascii": r"Zo\xeb \u8a9e", "latin-1": "Zo\u00eb " + r"\u8a9e", "utf-8": "Zo\u00eb \u8a9e"}[
        encoding
    ]
    assert known in shown("tree", "words", str(anchor), "--url", ledger.store.url)[0]
    out, error = shown("find", "words", "Zo\u00eb \u8a9e", "--url", ledger.store.url)
    assert (str(anchor) in out, error) == (True, "")
    assert f"'{known}'" in shown("stats", "Zo\u00eb \u8a9e", "--url", ledger.store.url)[1]
    assert f"'{known}'" in shown("Zo\u00eb \u8a9e")[1]
    assert r"'\udcff'" in shown("stats", "\udcff", "--url", ledger.store.url)[1]
    assert r"'\udcff'" in shown("unsubscribe", "words", "lines", "\udcff", "--url", ledger.store.url)[1]
    out = shown("trees", "words", "--json", "--url", ledger.store.url)[0]
    assert out.isascii()
    assert json.loads(out)["trees"][0]["message_id"] == "Zo\u00eb \u8a9e"
