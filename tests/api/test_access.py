"""Rights of tokens, and the protections of a browser."""

import hashlib
import socket

import httpx
import pytest

from acker.ledger.client import open_ledger
from acker.store.client import Store
from api.asgi.access import Rate, is_loopback
from tests.helpers.faces import patient
from tests.helpers.faces.api import OPERATE, READ, TOKENS, calling, serving
from tests.helpers.faces.streams_of_events import connected


@pytest.fixture(autouse=True)
def topology(valkey_url: str) -> None:
    """One that knows the tree of `BODY`, by a message that came before its track."""
    open_ledger(Store(valkey_url), "words", ackers=1).update([1], [7])


CALL = "callers-token-number-1"
FAIL = "/topologies/words/fail"
BODY = {"anchors": ["1"]}


def test_each_request_needs_a_token_that_is_known(address: str) -> None:
    for token in ("", "wrong-wrong-wrong-wrong", OPERATE[:-1], OPERATE + "x", "Ü" * 20):
        headers = [(b"Authorization", f"Bearer {token}".encode())] if token else []
        for path in ("/api/v1/topologies", "/api/v1/openapi.json", "/metrics", "/api/v1/nothing"):
            answer = patient.get(address + path, headers=headers)
            assert answer.status_code == 401, (path, token)
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert answer.headers["content-type"] == "application/problem+json"
    assert (
        patient.get(f"{address}/api/v1/topologies", headers={"Authorization": f"Basic {READ}"}).status_code
        == 401
    )
    assert patient.get(f"{address}/healthz").json() == {"status": "ok"}
    assert patient.get(f"{address}/readyz").json() == {"status": "ok"}


def test_to_change_something_a_token_needs_the_scope_operate(address: str) -> None:
    with calling(address, READ) as client:
        assert client.get("/topologies").status_code == 200
        answer = client.post(FAIL, json=BODY)
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:acker:read-only")
        name = hashlib.sha256(READ.encode()).hexdigest()[:8]
        assert answer.json()["detail"] == f"token {name!r} allows to read; writes need scope operate"
        assert client.get("/access").json() == {"scope": "read", "rows": False}
    with calling(address, OPERATE) as client:
        assert client.get("/topologies").status_code == 200
        assert client.post(FAIL, json=BODY).status_code == 200
        assert client.get("/access").json() == {"scope": "operate", "rows": True}


def test_a_client_is_told_which_store_and_environment_it_is_and_as_whom_it_acts(valkey_url: str) -> None:
    url = valkey_url.replace("redis://", "redis://default:no%20password@")
    tokens = f"ann=operate:{OPERATE} call:{CALL}"
    with serving(url, tokens=tokens, environment="production", ticker=False, history=False) as address:
        with calling(address) as client:
            assert client.get("/service").json() == {
                "store": valkey_url, "environment": "production", "client": "ann", "proved": True,
                "version": client.get("/openapi.json").json()["info"]["version"],
            }  # fmt: skip
        with calling(address, CALL) as caller:
            assert caller.get("/service").status_code == 403


def test_pages_of_other_sites_cannot_write(address: str, client: httpx.Client) -> None:
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        assert client.post(FAIL, json=BODY, headers=headers).status_code == 403, headers
    assert client.post(
        FAIL, json=BODY, headers={"Origin": address, "Sec-Fetch-Site": "same-origin"}
    ).is_success


def test_without_tokens_only_this_machine_under_its_own_name_is_answered(valkey_url: str) -> None:
    with serving(valkey_url, hosts="acker.test", ticker=False, history=False) as address:
        path = f"{address}/api/v1/topologies"
        assert patient.get(path).status_code == 200
        assert patient.get(f"{address}/api/v1/access").json() == {"scope": "operate", "rows": True}
        assert patient.get(path, headers={"Host": "localhost:8080"}).status_code == 200
        assert patient.get(path, headers={"Host": "acker.test"}).status_code == 200
        rebound = patient.get(path, headers={"Host": "evil.example"})
        assert (rebound.status_code, rebound.json()["type"]) == (403, "urn:acker:unknown-host")


def test_on_another_address_nothing_is_answered_without_tokens(valkey_url: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; says by which address it would go
        except OSError:
            pytest.skip("this machine has no address but the loopback one")
        own = probe.getsockname()[0]
    with serving(valkey_url, host="0.0.0.0", hosts=own, ticker=False, history=False) as address:
        port = address.rpartition(":")[2]
        assert patient.get(f"{address}/api/v1/topologies").status_code == 200
        answer = patient.get(f"http://{own}:{port}/api/v1/topologies")
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:acker:no-tokens")
        assert patient.get(f"http://{own}:{port}/healthz").status_code == 200
    with serving(valkey_url, host="0.0.0.0", tokens=TOKENS, ticker=False, history=False) as address:
        port = address.rpartition(":")[2]
        headers = {"Authorization": f"Bearer {READ}"}
        assert patient.get(f"http://{own}:{port}/api/v1/topologies", headers=headers).status_code == 200


def test_every_answer_protects_a_browser(address: str, client: httpx.Client) -> None:
    for answer in (
        client.get("/topologies"),
        client.get("/topologies/nobody"),
        patient.get(f"{address}/"),
        patient.get(f"{address}/api/v1/topologies"),
    ):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "set-cookie" not in answer.headers
        assert "server" not in answer.headers
    assert client.get("/topologies").headers["cache-control"] == "no-store"


def test_large_bodies_are_refused_whatever_their_headers_say(valkey_url: str) -> None:
    with (
        serving(valkey_url, tokens=TOKENS, body_bytes=2000, ticker=False, history=False) as address,
        calling(address) as client,
    ):
        body = b'{"anchors": ["1"' + b" " * 3000 + b"]}"
        answer = client.post(FAIL, content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["type"]) == (413, "urn:acker:body-too-large")
        chunked = client.post(
            FAIL, content=iter([body[:1500], body[1500:]]), headers={"Content-Type": "application/json"}
        )
        assert chunked.status_code == 413


def test_writes_of_a_client_are_limited(valkey_url: str) -> None:
    with (
        serving(valkey_url, tokens=TOKENS, writes_per_second=0.01, ticker=False, history=False) as address,
        calling(address) as client,
    ):
        answers = [client.post(FAIL, json=BODY) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 429, 429]
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 100
        assert client.get("/topologies").status_code == 200


def test_ten_seconds_worth_may_come_at_once() -> None:
    rate = Rate(0.5)
    assert [rate.take("a") > 0 for _ in range(7)] == [False] * 5 + [True] * 2


def test_a_rate_forgets_nobody_who_is_over_it() -> None:
    rate = Rate(0.001)
    assert rate.take("a") == 0.0
    assert rate.take("a") > 0
    assert rate.take("b") == 0.0


def test_reads_of_a_client_are_limited(valkey_url: str) -> None:
    with (
        serving(valkey_url, tokens=TOKENS, reads_per_second=0.2, ticker=False, history=False) as address,
        calling(address) as client,
    ):
        answers = [client.get("/topologies") for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
        assert answers[-1].json()["type"] == "urn:acker:too-many-reads"
        assert patient.get(f"{address}/healthz").status_code == 200


def test_what_no_url_can_be_is_refused_and_protected(address: str, client: httpx.Client) -> None:
    for headers, status in (
        ({"Origin": "http://[bad"}, 403),
        ({"Origin": "http://[::bad]:x"}, 403),
    ):
        answer = client.post(FAIL, json=BODY, headers=headers)
        assert answer.status_code == status, headers
        assert answer.headers["x-frame-options"] == "DENY"
    for path in ("/" + "x" * 300, "/assets/" + "x" * 300 + ".js", "/.built-from", "/assets/.hidden"):
        answer = patient.get(address + path)
        assert answer.status_code in (200, 404), path
        assert "x-frame-options" in answer.headers
        assert path.startswith("/x") or answer.status_code == 404


@pytest.mark.parametrize("hosts", [0, 2])
def test_a_request_names_one_host(address: str, hosts: int) -> None:
    lines = ["GET /healthz HTTP/1.1", *["Host: localhost"] * hosts, "Connection: close", "", ""]
    with connected(address, "\r\n".join(lines).encode()) as connection, connection.makefile("rb") as answer:
        said = answer.read()
    assert said.startswith(b"HTTP/1.1 400 "), said
    assert f"Host: expected one, got {hosts}".encode() in said


def test_a_name_that_is_none_is_a_bad_request(valkey_url: str) -> None:
    with serving(valkey_url, ticker=False, history=False) as address:
        answer = patient.get(f"{address}/api/v1/topologies", headers={"Host": "[bad"})
        assert (answer.status_code, answer.json()["type"]) == (400, "urn:acker:bad-request")


def test_a_failure_is_protected(address: str, client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("not an error of what is stored")

    monkeypatch.setattr("acker.inspect.topology.state.stored", broken)
    answer = client.get("/topologies/words")
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:acker:internal-error")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


def test_what_loopback_is() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost", "LOCALHOST"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "", "localhost.evil.example"]))
