"""The acker's own messages, for clients in any language."""

from typing import Annotated, Literal

from pydantic import Field

from api.fields import Answer, Id, MessageId, MessageIdBase64, Model, Name, Reason, Retry

MESSAGES = 10_000
"""Most messages in a call."""
STEPS = 64
"""Of so many steps, in the order of their names, a call notes that they are at work."""


_STEP = (
    "The name of the bolt. It is known as a step that is at work, as far as a call names no more than "
    f"{STEPS} of them."
)


class Track(Model):
    """Tracks a tree (Storm's ACKER_INIT).

    The anchor of a tree of its own is a random negative number. Trees that are tracked together in one call,
    a slab, share 50 random bits, have the indexes 0, 1, 2 ... in the 12 bits below them, and a 1.
    """

    type: Literal["track"]
    spout: Name
    anchor: Id
    value: Id = Field(description="XOR of the ids of the tuples emitted first; 0 is acked at once.")
    message_id: MessageId | None = None
    message_id_base64: MessageIdBase64 | None = Field(
        default=None, description="In place of `message_id`, and before it where both are given."
    )


class Ack(Model):
    """Acks tuples, and registers their children in the same message (Storm's ACKER_ACK)."""

    type: Literal["ack"]
    anchor: Id
    value: Id = Field(description="XOR of the ids of the tuples acked and of those emitted from them.")
    step: Name | None = Field(default=None, description=_STEP)


class Fail(Model):
    """Fails a tree (Storm's ACKER_FAIL): final and at once."""

    type: Literal["fail"]
    anchor: Id
    reason: Reason = ""
    step: Name | None = Field(default=None, description=_STEP)
    retry: Retry = True


class ResetTimeout(Model):
    """Gives a tree, and all others of its slab, the whole message timeout again."""

    type: Literal["reset_timeout"]
    anchor: Id


Message = Annotated[Track | Ack | Fail | ResetTimeout, Field(discriminator="type")]


class MessagesBody(Model):
    """Messages for the ledger. Their order does not matter: the ledger takes them in any."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MESSAGES)]


class TrackResult(Answer):
    """The result of tracks."""

    tracked: int = Field(ge=0)
    duplicates: int = Field(ge=0, description="Tracked before with the same content: nothing changed.")
    conflicts: list[Id] = Field(description="Tracked before with other content: nothing changed.")
    rejected: list[Id] = Field(description="Over the high-water mark, or of a paused spout: nothing changed.")


class AckResult(Answer):
    """The result of acks: all were applied except these."""

    late: int = Field(ge=0, description="For trees that were finished.")
    orphaned: int = Field(ge=0, description="For trees that are not tracked and have no room to wait.")


class FailMessagesResult(AckResult):
    """The result of fails."""

    failed: int = Field(ge=0)


class MessagesResult(Answer):
    """The result of messages."""

    track: TrackResult
    ack: AckResult
    fail: FailMessagesResult
    slabs_reset: int = Field(ge=0)
