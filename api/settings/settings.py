"""The service's settings, by environment: `ACKER_URL`, `ACKER_TOKENS` and so on. docs/api.md lists them."""

from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from acker.errors import ValidationError
from acker.store.address import parse
from api.settings.token_file import Accepted
from api.settings.tokens import Tokens


class Settings(BaseSettings):
    """The settings of the service. Raises pydantic's ValidationError for bad values."""

    model_config = SettingsConfigDict(env_prefix="ACKER_", frozen=True, extra="ignore")

    url: SecretStr = SecretStr("")
    """The store, as redis://HOST:PORT/0; it may hold a password."""
    cluster: bool = False
    """True if the URL is the URL of a node of a Redis Cluster."""
    timeout: Annotated[float, Field(ge=0.1, le=60)] = 2.0
    """Seconds to wait for the store before an answer is 503."""
    tokens: SecretStr = SecretStr("")
    """`[name=]scope[+rows][+until=END]:token`, separated by commas or spaces; `sha256:<hex>` may stand for
    the token; scope is read, call or operate. The log tells the name. With rows it may see rows of dead
    letters."""
    tokens_file: str = ""
    """A file of such tokens, one or more a line; what follows a # is a comment. It is read again when it
    changes."""
    hosts: str = ""
    """Names under which the service may be called without tokens, beside the names of loopback."""
    proxies: str = ""
    """Addresses of proxies, separated by commas or spaces, that may report the address of their client."""
    environment: Annotated[str, Field(max_length=40)] = ""
    """The environment's name, as production or staging: the dashboard shows it."""
    ticker: bool = True
    """True to tick all topologies."""
    history: bool = True
    """True to write the history of counters."""
    otel: bool = False
    """True to export traces by OpenTelemetry, which needs acker[otel]."""
    body_bytes: Annotated[int, Field(ge=1024, le=256 << 20)] = 16 << 20
    """Most bytes of a request's body."""
    writes_per_second: Annotated[float, Field(gt=0, le=1e6)] = 20.0
    """Writes a client may make in the long run; ten seconds' worth may come at once."""
    reads_per_second: Annotated[float, Field(gt=0, le=1e6)] = 500.0
    """Reads a client may make in the long run; ten seconds' worth may come at once."""
    connections: Annotated[int, Field(ge=1, le=1_000_000)] = 2_000
    """Most connections at a time; fewer where the process may not open so many files."""
    connections_of_client: Annotated[int, Field(ge=1, le=1_000_000)] = 200
    """Most connections of one address at a time; a proxy that is named may have all."""
    request_seconds: Annotated[float, Field(ge=0.1, le=3600)] = 30.0
    """Seconds in which a request must be sent whole, and in which a client must take some of its answer."""
    streams: Annotated[int, Field(ge=1, le=10_000)] = 500
    """Most event streams at a time."""
    streams_of_client: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Most event streams of one client at a time."""
    stream_seconds: Annotated[float, Field(ge=1, le=86_400)] = 3600.0
    """Seconds after which an event stream ends; the client comes again."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "text"] = "json"

    @field_validator("url")
    @classmethod
    def _url(cls, value: SecretStr) -> SecretStr:
        if value.get_secret_value():
            try:
                parse(value.get_secret_value())
            except ValidationError as error:
                raise ValueError(str(error)) from None
        return value

    @field_validator("tokens")
    @classmethod
    def _tokens(cls, value: SecretStr) -> SecretStr:
        # Only hashes are kept.
        return SecretStr(Tokens.parse(value.get_secret_value()).hashed())

    @model_validator(mode="after")
    def _read_tokens_file(self) -> Self:
        _ = self.access  # an error now, not at the first request; and a pipe can be read once only
        return self

    @cached_property
    def access(self) -> Accepted:
        """The tokens that are accepted."""
        return Accepted(Tokens.parse(self.tokens.get_secret_value()), self.tokens_file)


def settings(**given: Any) -> Settings:
    """Settings from the environment and from what is given; ValidationError names what is wrong in a line."""
    from pydantic import ValidationError as Invalid

    try:
        return Settings(**given)
    except Invalid as error:
        wrong = "; ".join(
            f"ACKER_{'.'.join(str(part) for part in one['loc'] or ('tokens_file',)).upper()}: {one['msg']}"
            for one in error.errors()
        )
        raise ValidationError(wrong) from None
