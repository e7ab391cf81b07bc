"""TLS: certificates on both sides, users and passwords; a server, a cluster and Sentinels behind it."""

import asyncio
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from acker.embedded import EmbeddedServer
from acker.embedded.server import free_port
from acker.errors import StoreMisconfigured
from acker.store.async_client import AsyncStore
from acker.store.client import Store
from acker.store.operation import command
from tests.helpers.builders.ledgers import Trees, counted, opened, reported
from tests.helpers.faults.proxy import proxied
from tests.helpers.servers.clusters import Cluster
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.sentinels import Sentinels
from tests.helpers.servers.servers import binary, wait_until
from tests.helpers.servers.threads import in_a_thread

ASKED = [command("EXISTS", b"anything")]
HOST = "localhost"
"""The certificates are for a name, so an address would not do."""


@dataclass
class Certificates:
    """Of an authority, a server and a client, as files in PEM format."""

    authority: Path
    server: tuple[Path, Path]
    client: tuple[Path, Path]

    @property
    def options(self) -> dict[str, str]:
        """The options of a server."""
        return {
            "tls-ca-cert-file": str(self.authority),
            "tls-cert-file": str(self.server[0]),
            "tls-key-file": str(self.server[1]),
            "tls-auth-clients": "yes",
        }

    @property
    def query(self) -> str:
        """The query of a URL."""
        certificate, key = (str(path) for path in self.client)
        return urlencode(
            {"ssl_ca_certs": str(self.authority), "ssl_certfile": certificate, "ssl_keyfile": key}
        )


def made(directory: Path, *names: str) -> Certificates:
    """Certificates of an authority of their own, for a server of these names."""
    directory.mkdir()
    authority = trustme.CA()
    files = {}
    for name in ("server", "client"):
        own = authority.issue_cert(*(names or (HOST, "127.0.0.1")))
        files[name] = directory / f"{name}.pem", directory / f"{name}.key"
        own.cert_chain_pems[0].write_to_path(str(files[name][0]))
        own.private_key_pem.write_to_path(str(files[name][1]))
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    return Certificates(directory / "ca.pem", files["server"], files["client"])


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return made(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture
def server(new_server: NewServer, certificates: Certificates) -> EmbeddedServer:
    """A server that speaks TLS on its `tls-port`, to clients with a certificate. Only Debian's can."""
    return start(new_server, certificates)


def start(new_server: NewServer, certificates: Certificates) -> EmbeddedServer:
    port = str(free_port())
    return new_server("redis", append_only=False, options={"tls-port": port, **certificates.options})


def url_of(server: EmbeddedServer, query: str, user: str = "") -> str:
    return f"rediss://{user}{HOST}:{server.options['tls-port']}/0?{query}"


async def test_the_ledger_works_over_tls(server: EmbeddedServer, certificates: Certificates) -> None:
    url = url_of(server, certificates.query)
    ledger = opened(url, ackers=2)
    trees = Trees(3).track(ledger)
    trees.complete(ledger)
    counted(ledger, tracked=3, acked=3)
    async with AsyncStore(url) as twin:
        assert await twin.send([command("SISMEMBER", b"acker:topologies", "tested")]) == [1]


async def test_a_cut_handshake_is_begun_again(server: EmbeddedServer, certificates: Certificates) -> None:
    with proxied(f"redis://{HOST}:{server.options['tls-port']}") as proxy:
        url = f"rediss://{HOST}:{urlsplit(proxy.url).port}/0?{certificates.query}"
        async with AsyncStore(url, timeout=60) as twin:
            for send in (in_a_thread(Store(url, timeout=60)), twin.send):
                proxy.refuse, proxy.refused = True, 0
                asked = asyncio.ensure_future(send(ASKED))
                await asyncio.to_thread(wait_until, lambda: proxy.refused >= 2)
                proxy.refuse = False
                assert await asked == [0]


async def test_what_tls_does_not_let_in_is_an_error_at_once(
    server: EmbeddedServer, certificates: Certificates, tmp_path: Path
) -> None:
    authority = urlencode({"ssl_ca_certs": str(certificates.authority)})
    strange = made(tmp_path / "strange")
    for query in (
        authority,  # no certificate of the client
        strange.query,  # neither side trusts the other
        authority + "&ssl_certfile=/no/such/file&ssl_keyfile=/no/such/key",
    ):
        with pytest.raises(StoreMisconfigured, match="no connection to rediss://localhost"):
            Store(url_of(server, query), timeout=300).send(ASKED)
        async with AsyncStore(url_of(server, query), timeout=300) as twin:
            with pytest.raises(StoreMisconfigured, match="no connection"):
                await twin.send(ASKED)


def test_the_name_on_the_certificate_counts(new_server: NewServer, tmp_path: Path) -> None:
    others = made(tmp_path / "others", "another.invalid")
    url = url_of(start(new_server, others), others.query)
    with pytest.raises(StoreMisconfigured, match="no connection"):
        Store(url, timeout=300).send(ASKED)
    assert Store(url + "&ssl_check_hostname=false").send(ASKED) == [0]


def test_a_user_and_a_password_go_along(server: EmbeddedServer, certificates: Certificates) -> None:
    operator = Store(url_of(server, certificates.query))
    operator.send(
        [command("ACL", b"SETUSER", "ann", "on", ">p@ss", "~*", "+info", "+exists", "+client", "+hello")]
    )
    assert Store(url_of(server, certificates.query, "ann:p%40ss@")).send(ASKED) == [0]
    with pytest.raises(StoreMisconfigured, match="refuses this client"):
        Store(url_of(server, certificates.query, "ann:wrong@"), timeout=300).send(ASKED)


def test_the_password_of_a_key_file_is_used_and_is_not_reported(
    server: EmbeddedServer, certificates: Certificates, tmp_path: Path
) -> None:
    certificate, key = certificates.client
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        load_pem_private_key(key.read_bytes(), None).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"sesame")
        )
    )
    files = {
        "ssl_ca_certs": str(certificates.authority),
        "ssl_certfile": str(certificate),
        "ssl_keyfile": str(locked),
    }
    assert Store(url_of(server, urlencode({**files, "ssl_password": "sesame"}))).send(ASKED) == [0]
    store = Store(url_of(server, urlencode({**files, "ssl_password": "hunter2"})), timeout=300)
    with pytest.raises(StoreMisconfigured, match="no connection to rediss://localhost") as refused:
        store.send(ASKED)
    assert "hunter2" not in "".join(traceback.format_exception(refused.value)) + repr(store)


def test_a_cluster_is_reached_over_tls(tmp_path: Path, certificates: Certificates) -> None:
    with Cluster(
        tmp_path,
        binary=binary("redis"),
        replicas=False,
        patient=True,
        options={**certificates.options, "tls-cluster": "yes", "tls-replication": "yes"},
        own_ports=["tls-port"],
    ) as cluster:
        port = cluster.servers[1].options["tls-port"]
        ledger = opened(f"rediss+cluster://127.0.0.1:{port}?{certificates.query}", ackers=6, timeout=60)
        trees = [Trees(2).track(ledger) for _ in range(8)]
        for one in trees:
            one.complete(ledger)
        assert len(reported(ledger, *trees)) == 16


@pytest.fixture
def sentinels(tmp_path: Path, certificates: Certificates) -> Iterator[Sentinels]:
    with Sentinels(
        tmp_path,
        binary=binary("redis"),
        options=certificates.options,
        sentinel_options={**certificates.options, "requirepass": "word"},
        tls=True,
    ) as sentinels:
        yield sentinels


def test_sentinels_are_reached_over_tls(sentinels: Sentinels, certificates: Certificates) -> None:
    url = sentinels.url.replace("redis+", "rediss+")
    ledger = opened(f"{url}?{certificates.query}&sentinel_password=word", timeout=60)
    Trees(2).track(ledger).complete(ledger)
    counted(ledger, tracked=2, acked=2)
    with pytest.raises(StoreMisconfigured, match="refuses this client"):
        opened(f"{url}?{certificates.query}&sentinel_password=wrong", timeout=300)
