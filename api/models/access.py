"""The rights of a client."""

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
