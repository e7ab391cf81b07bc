"""The rights of a client, and what it talks to."""

from pydantic import Field

from api.fields import Answer
from api.settings.tokens import Scope


class AccessState(Answer):
    """The rights of the request's token; without tokens everything is allowed."""

    scope: Scope = Field(
        description="`read` to look, `call` to call functions and no more, `operate` to look and to change.",
        examples=["operate"],
    )
    rows: bool = Field(description="true: rows of dead letters are shown.")


class ServiceState(Answer):
    """A service: its store and its environment, and the author of what this client does."""

    store: str = Field(description="Its URL without user and password.", examples=["redis://store:6379/0"])
    environment: str = Field(
        description="As `ACKER_ENVIRONMENT` says; empty without.", examples=["production"]
    )
    version: str = Field(description="Of acker.", examples=["0.4.0"])
    client: str = Field(
        description="Stands in the activity as the author: the token's name, or the first digits of its "
        "SHA-256; without tokens an address.",
        examples=["ann"],
    )
    proved: bool = Field(description="True where a token says so.")
