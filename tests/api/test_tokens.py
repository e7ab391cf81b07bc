"""Tokens: their scopes, their names, their end, and the file that they may come from."""

import hashlib
import logging
import os
from pathlib import Path

import pyarrow as pa
import pytest

from acker.errors import ValidationError
from acker.ledger.client import open_ledger
from acker.store.client import Store
from acker.streams import StreamReader
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from api.settings.settings import Settings, settings
from api.settings.tokens import Tokens
from tests.helpers.faces import patient
from tests.helpers.faces.api import OPERATE, READ, TOKENS, calling, serving
from tests.helpers.servers.servers import wait_until

SECRET = "the-secret-word-of-a-row"
LETTERS = "/topologies/words/dead-letters"


def bury(url: str) -> None:
    """Makes a dead letter whose row has a secret."""
    ledger = open_ledger(Store(url), "words", ackers=1)
    StreamSpout(ledger, SpoutOptions("lines", "lines", "id", attempts=1)).write(
        pa.table({"id": [1], "text": [SECRET]})
    )
    reader = StreamReader(ledger, "lines")
    ledger.fail([int(str(row["_acker"])) for row in reader.rows()], "bad")
    settler.settle(ledger)
    reader.ack_all()


@pytest.mark.parametrize("scope", ["read", "operate"])
def test_rows_of_dead_letters_are_shown_to_tokens_with_scope_rows_alone(valkey_url: str, scope: str) -> None:
    bury(valkey_url)
    with_rows = "a-token-with-scope-rows"
    tokens = f"{scope}:{READ} {scope}+rows:{with_rows}"
    with serving(valkey_url, tokens=tokens, ticker=False, history=False) as address:
        for token, row, why in ((READ, None, "scope"), (with_rows, {"id": 1, "text": SECRET}, "")):
            with calling(address, token) as client:
                assert client.get("/access").json() == {"scope": scope, "rows": row is not None}
                [listed] = client.get(LETTERS).json()["dead_letters"]
                alone = client.get(f"{LETTERS}/{listed['id']}").json()
                exported = client.get(f"{LETTERS}/export")
                assert alone == listed == exported.json()
                assert (listed["row"], listed["row_left_out"]) == (row, why)
                assert listed["reason"] == "bad"
                found = client.get("/topologies/words/records", params={"message_id": "1"}).text
                assert SECRET not in found + client.get(f"{LETTERS}/groups").text
                assert (SECRET in exported.text) == (row is not None)


def test_without_tokens_rows_are_shown(valkey_url: str) -> None:
    bury(valkey_url)
    with (
        serving(valkey_url, ticker=False, history=False) as address,
        calling(address, "") as client,
    ):
        [letter] = client.get(LETTERS).json()["dead_letters"]
        assert (letter["row"], letter["row_left_out"]) == ({"id": 1, "text": SECRET}, "")


def test_a_token_whose_time_is_over_is_refused(valkey_url: str) -> None:
    tokens = f"ann=read+rows+until=2001-01-01T00:00:00Z:{READ} bob=read+until=2190-12-31:{OPERATE}"
    with serving(valkey_url, tokens=tokens, ticker=False, history=False) as address:
        with calling(address, READ) as client:
            answer = client.get("/access")
            assert (answer.status_code, answer.json()["type"]) == (401, "urn:acker:unauthorized")
            assert answer.json()["detail"] == "the time of token 'ann' is over"
            assert answer.headers["www-authenticate"].startswith("Bearer")
        with calling(address, OPERATE) as client:
            assert client.get("/access").json() == {"scope": "read", "rows": False}


@pytest.mark.parametrize(
    ("until", "end"),
    [
        ("2026-12-31", "2027-01-01T00:00:00Z"),
        ("2026-12-31T18:00Z", "2026-12-31T18:00:00Z"),
        ("2026-12-31T18:00:01Z", "2026-12-31T18:00:01Z"),
    ],
)
def test_an_end_is_a_time_or_a_whole_day(until: str, end: str) -> None:
    tokens = Tokens.parse(f"ann=operate+rows+until={until}:{OPERATE}")
    digest = hashlib.sha256(OPERATE.encode()).hexdigest()
    assert tokens.hashed() == f"ann=operate+rows+until={end}:sha256:{digest}"
    assert Tokens.parse(tokens.hashed()).accepted == tokens.accepted


def test_of_several_entries_of_a_token_the_one_with_most_rights_holds() -> None:
    for text in (f"read:{READ} operate:{READ}", f"operate:{READ} read+rows:{READ}"):
        token = Tokens.parse(text).find(READ)
        assert token is not None
        assert (token.scope, token.rows) == ("operate", False)
    token = Tokens.parse(f"operate+until=2001-01-01:{READ} read:{READ}").find(READ)
    assert token is not None
    assert token.scope == "read"


def test_the_file_of_tokens_is_read_again_when_it_changes(
    valkey_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, new = tmp_path / "tokens", "a-token-that-came-later"
    file.write_text(f"ann=read:{READ}\n")
    caplog.set_level(logging.INFO, "api.settings.token_file")

    def status(token: str) -> int:
        return patient.get(
            f"{address}/api/v1/access", headers={"Authorization": f"Bearer {token}"}
        ).status_code

    def said() -> list[str]:
        return [record.message for record in caplog.records if record.levelname == "ERROR"]

    with serving(
        valkey_url, tokens=f"bob=read:{OPERATE}", tokens_file=str(file), ticker=False, history=False
    ) as address:
        assert [status(token) for token in (READ, OPERATE, new)] == [200, 200, 401]
        (tmp_path / "next").write_text(f"# rotated\nann=read:{new}\n")
        (tmp_path / "next").replace(file)
        wait_until(lambda: status(READ) == 401)
        assert [status(token) for token in (OPERATE, new)] == [200, 200]

        for text in (f"ann=read:{READ} everybody:{READ}", "", None):
            before = len(said())
            file.unlink() if text is None else file.write_text(text)
            wait_until(lambda before=before: status(new) == 200 and len(said()) > before)  # type: ignore[misc]
            assert [status(token) for token in (READ, OPERATE, new)] == [401, 200, 200]
        file.write_text(f"ann=read:{READ}\n")
        wait_until(lambda: status(READ) == 200)
        assert status(new) == 401
    assert len(said()) == 3, "a file that stays broken is logged once"
    assert all("the tokens of before stay accepted" in line for line in said())
    assert READ not in caplog.text


def test_only_hashes_of_tokens_are_kept() -> None:
    tokens = Tokens.parse(TOKENS)
    assert OPERATE not in tokens.hashed()
    again = Tokens.parse(tokens.hashed())
    found = again.find(OPERATE)
    assert found is not None
    assert found.scope == "operate"
    assert (found.rows, found.until) == (True, float("inf"))
    assert again.find(READ + "x") is None


def test_tokens_have_names_which_say_who_it_was(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# of the team\nann=operate:{OPERATE}  # rotated\n\nread:{READ}\n")
    tokens = Settings(tokens_file=str(file), tokens="bob=read:" + "b" * 16).access  # type: ignore[arg-type]
    found = [tokens.find(token) for token in (OPERATE, READ, "b" * 16)]
    assert [token and (token.scope, token.client) for token in found] == [
        ("operate", "ann"),
        ("read", hashlib.sha256(READ.encode()).hexdigest()[:8]),
        ("read", "bob"),
    ]
    file.write_text("# nobody\n")
    for path, what in ((file, "no token"), (tmp_path / "missing", "cannot be read")):
        with pytest.raises(ValidationError, match=what):
            settings(tokens_file=str(path))


@pytest.mark.parametrize("digest", ["A" * 64, "a" * 63, "a" * 65, "g" * 64, ""])
@pytest.mark.parametrize("prefix", ["sha256:", "SHA256:"])
def test_a_malformed_hash_is_no_token(prefix: str, digest: str) -> None:
    with pytest.raises(ValueError, match="token 1: expected 64 hexadecimal digits in lower case"):
        Tokens.parse(f"read:{prefix}{digest}")


@pytest.mark.parametrize(
    "text",
    [
        "secret-secret-secret",
        "admin:secret-secret-secret",
        "read:secret",
        "rows:secret-secret-secret",
        "call+rows:secret-secret-secret",
        "read+operate:secret-secret-secret",
        "read+rows+rows:secret-secret-secret",
        "read+until=2026-13-01:secret-secret-secret",
        "read+until=2026:secret-secret-secret",
        "read+until=2026-12-31T18:secret-secret-secret",
        "read+until=9999-12-31:secret-secret-secret",
    ],
)
def test_bad_tokens_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="token 1") as reported:
        Tokens.parse(text)
    assert "secret" not in str(reported.value)


def test_a_file_of_tokens_may_be_a_pipe_and_one_in_its_place_holds_nothing_up(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, f"read:{READ}\n".encode())
    os.close(writing)
    by_pipe = settings(tokens_file=f"/dev/fd/{reading}").access
    os.close(reading)
    assert by_pipe.find(READ) is not None
    path = tmp_path / "tokens"
    path.write_text(f"read:{READ}")
    access = settings(tokens_file=str(path)).access
    path.unlink()
    os.mkfifo(path)
    access._look()
    assert access.find(READ) is not None


def test_a_long_token_is_refused_at_once() -> None:
    with pytest.raises(ValidationError, match="token 1: expected at most 1,000 characters, got 1,000,011"):
        settings(tokens="read+until=" + "1" * 1_000_000)
