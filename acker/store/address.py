"""URLs of stores: one server, a Redis Cluster, or a service that Sentinels watch; plain or over TLS.

    redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]        unix://[USER:PASSWORD@]/PATH[?db=DATABASE]
    redis+cluster://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT] ...
    redis+sentinel://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT] .../SERVICE[/DATABASE]

With `rediss` for `redis` all connections are TLS. `%` escapes reserved characters of a user or a password.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from acker.errors import ValidationError


def parse_flag(text: str) -> bool:
    """true or false"""  # noqa: D403, D415 - the expected values, for messages
    flags = {"true": True, "false": False}
    if text.lower() not in flags:
        raise ValueError(f"expected true or false, got {text!r}")
    return flags[text.lower()]


Node: TypeAlias = tuple[str, int]
"""Host and port; for a socket of the file system its path and 0."""
Kind: TypeAlias = Literal["server", "cluster", "sentinel"]

MOST_NODES = 100
SOCKET_PATH = 107
"""Most bytes of the path of a socket, a limit of Linux."""
PORTS: dict[Kind, int] = {"server": 6379, "cluster": 6379, "sentinel": 26379}

_SCHEME = re.compile(r"(redis|rediss)(?:\+(cluster|sentinel))?\Z|unix\Z")
_ESCAPES = "expected %2F, %3F and %23 for each / ? and # in a user or a password"
_EXPECTED = "redis://, rediss:// or unix://, or one with +cluster or +sentinel"


def _requirement(text: str) -> str:
    if text not in ("required", "optional", "none"):
        raise ValueError(f"expected required, optional or none, got {text!r}")
    return text


def _value_bytes(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 << 20 <= int(text[:20]) < 1 << 40):
        raise ValueError(f"expected a whole number of bytes from 1048576 on, got {text!r:.50}")
    return int(text)


MAX_VALUE_BYTES = "max_value_bytes"
"""The option for any store: its `proto-max-bulk-len`, for a store that hides this setting."""
TLS_OPTIONS: dict[str, Callable[[str], object]] = {
    "ssl_ca_certs": str,
    "ssl_certfile": str,
    "ssl_keyfile": str,
    "ssl_password": str,
    "ssl_cert_reqs": _requirement,
    "ssl_check_hostname": parse_flag,
}
"""The options with TLS: files in PEM format, the password of the key file, the check of the server's
certificate (required, the default; none), and the check of its name (true, the default)."""
SENTINEL_OPTIONS = ("sentinel_username", "sentinel_password")
"""The options with Sentinels: their own user and password. Without these the Sentinels get none."""


@dataclass(frozen=True)
class Address:
    """The content of a URL.

    Attributes:
        nodes: The named hosts and ports.
        settings: Settings of a connection to a server, in redis-py's words.
        sentinel_settings: The same of a connection to a Sentinel.
        service: The service's name at the Sentinels.
        max_value_bytes: Most bytes of one value; 0 asks the store for its limit.
    """

    kind: Kind
    nodes: tuple[Node, ...]
    tls: bool
    settings: dict[str, Any] = field(repr=False)
    sentinel_settings: dict[str, Any] = field(repr=False)
    service: str = ""
    max_value_bytes: int = 0


def shown(url: str) -> str:
    """A URL without its passwords, for messages; an unescaped password is hidden too."""
    scheme, mark, rest = url.partition("://") if "://" in url else ("", "", url)
    place, *options = re.split("[?#]", rest, maxsplit=1)
    if options and "@" in options[0]:
        return f"{scheme}{mark}..."  # the end of the password is uncertain
    return f"{scheme}{mark}{place.rpartition('@')[2]}"


def _split(url: str) -> SplitResult:
    """A URL in parts. Brackets are escaped, because newer Pythons allow them only around a single host."""
    return urlsplit(url.replace("[", "%5B").replace("]", "%5D"))


def _whole(text: str) -> str:
    return text.replace("%5B", "[").replace("%5D", "]")


def parse(url: object, cluster: bool = False) -> Address:
    """Parses the URL of a store.

    Args:
        url: The URL.
        cluster: True if a plain URL names a node of a Redis Cluster, as `+cluster` does.

    Raises:
        ValidationError: The URL is not the URL of a store.
    """
    scheme = _SCHEME.match(_split(url).scheme) if isinstance(url, str) else None
    if not isinstance(url, str) or scheme is None:
        text = shown(url) if isinstance(url, str) else url
        raise ValidationError(f"url: expected {_EXPECTED}, got {text!r}")
    if any("\ud800" <= character <= "\udfff" for character in url):  # half of a pair: no bytes hold it
        raise ValidationError(f"url: expected text of whole characters, in {shown(url)!r}")
    try:
        return _parse(_split(url), scheme, cluster)
    except ValueError as error:
        raise ValidationError(f"url: {error}, in {shown(url)!r}") from error


def _parse(parts: SplitResult, scheme: re.Match[str], cluster: bool) -> Address:
    kind: Kind = scheme[2] or ("cluster" if cluster else "server")  # type: ignore[assignment]
    tls = scheme[1] == "rediss"
    if parts.fragment or (scheme[1] and "@" in parts.path):
        raise ValueError(_ESCAPES)
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = (unquote(part) for part in credentials.partition(":"))
    options = _options(parts.query, kind, tls, unix=not scheme[1])
    limit = options.pop(MAX_VALUE_BYTES, 0)
    server = {name: value for name, value in options.items() if name not in SENTINEL_OPTIONS}
    sentinel = {name: value for name, value in server.items() if name != "db"}
    for settings, name, word in (
        (server, user, password),
        (sentinel, options.get("sentinel_username"), options.get("sentinel_password")),
    ):
        settings |= {"username": name or None, "password": word or None}
    if not scheme[1]:
        if hosts or not parts.path or cluster:
            raise ValueError("expected the path of a socket after unix://")
        path = unquote(parts.path)
        if len(path.encode()) > SOCKET_PATH or "\0" in path:
            raise ValueError(
                f"expected a path of at most {SOCKET_PATH} bytes and no NUL for a Unix socket, "
                f"got {len(path.encode())} bytes"
            )
        return Address("server", ((path, 0),), False, server, {}, max_value_bytes=limit)
    nodes = tuple(_node(text, PORTS[kind]) for text in _whole(hosts).split(","))
    if len(nodes) > (1 if kind == "server" else MOST_NODES):
        raise ValueError(f"expected {'one host' if kind == 'server' else f'at most {MOST_NODES} hosts'}")
    places = unquote(parts.path).strip("/").split("/") if parts.path.strip("/") else []
    service = ""
    if kind == "sentinel":
        if not places:
            raise ValueError("expected /SERVICE[/DATABASE] after the Sentinels")
        service = places.pop(0)
    server["db"] = _database(places)
    if kind == "cluster" and server["db"]:
        raise ValueError(f"a cluster has database 0 only, got {server['db']}")
    return Address(kind, nodes, tls, server, sentinel, service, limit)


def _options(query: str, kind: Kind, tls: bool, unix: bool) -> dict[str, Any]:
    parsers: dict[str, Callable[[str], object]] = {**(TLS_OPTIONS if tls else {})}
    parsers |= dict.fromkeys(SENTINEL_OPTIONS, str) if kind == "sentinel" else {}
    parsers |= {"db": lambda text: _database([text])} if unix else {}
    parsers[MAX_VALUE_BYTES] = _value_bytes
    values: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in parsers and "@" in name + text:
            raise ValueError(_ESCAPES)
        if name not in parsers:
            expected = f"one of {', '.join(parsers)}" if parsers else "none"
            raise ValueError(f"option {name!r}: expected {expected}")
        try:
            values[name] = parsers[name](text)
        except ValueError as error:
            raise ValueError(f"option {name!r}: {error}") from error
    return values


def _node(text: str, port: int) -> Node:
    parts = urlsplit(f"//{text}")
    try:
        given = parts.port
        if given == 0:
            raise ValueError
    except ValueError:  # its text may be a password
        raise ValueError(f"expected HOST:PORT, a port being a number up to 65535; {_ESCAPES}") from None
    return unquote(parts.hostname or "localhost"), port if given is None else given


def _database(path: list[str]) -> int:
    if not path:
        return 0
    if len(path) > 1 or not path[0].isascii() or not path[0].isdigit():
        raise ValueError(f"expected the number of a database, got {'/'.join(path)!r}")
    return int(path[0])
