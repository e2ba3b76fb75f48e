"""What happens in a job beside its conversation: the steps that a display shows and a record keeps."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from callboard.coding.json_encoding import encode_json
from callboard.core import Event, PictureContent


class PhaseStarted(msgspec.Struct, frozen=True, tag_field="type", tag="phase_started"):
    """A phase begins; `rounds` is how many replies it may take."""

    name: str
    rounds: int


class PhaseEnded(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="phase_ended"):
    """A phase is over; `missing` is what its evidence lacks, empty where all of it holds."""

    name: str
    missing: tuple[str, ...] = ()


class Notice(msgspec.Struct, frozen=True, tag_field="type", tag="notice"):
    """Callboard's own words to the user."""

    text: str


class PromptSent(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="prompt_sent"):
    """The model was sent a prompt: a task, or what is missing; `pictures` are what a person showed with it."""

    text: str
    pictures: tuple[PictureContent, ...] = ()


class TreeSnapshot(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="tree_snapshot"):
    """The job's files and notes as they are behind a round: a fork of the round begins with them."""

    tree: str
    """The id of a git tree, whose objects are in the job's folder."""
    memory: dict[str, Any] = {}


class Resumed(msgspec.Struct, frozen=True, tag_field="type", tag="resumed"):
    """Another process goes on with the job: a reply that was not whole is void, and so is nothing else."""


Step: TypeAlias = Event | PhaseStarted | PhaseEnded | Notice | PromptSent | TreeSnapshot | Resumed
"""What happens in a job."""


def encode_step(step: Step) -> bytes:
    """The step as one line of JSON, without the line break."""
    return encode_json(step)
