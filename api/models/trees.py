"""The things that can be done to trees by hand."""

from typing import Annotated

from pydantic import Field

from api.fields import Answer, Id, Model, Reason, Retry

ANCHORS = 1_000
"""Most trees that one call fails or resets."""


class FailBody(Model):
    """The reason for failing a tree."""

    reason: Reason = "failed by hand"
    retry: Retry = True


Anchors = Annotated[
    list[Id], Field(min_length=1, max_length=ANCHORS, description="Trees; one named twice counts once.")
]


class FailManyBody(FailBody):
    """Trees to fail, and the reason."""

    anchors: Anchors


class ResetManyBody(Model):
    """Trees that get the whole message timeout again."""

    anchors: Anchors


class ResetResult(Answer):
    """The number of slabs that were reset."""

    slabs: int = Field(ge=0, description="Slabs that went back to the nursery, with all their trees.")
