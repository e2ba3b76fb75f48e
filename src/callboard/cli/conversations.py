"""Which conversation a command goes on with.

Owns the three flags' meaning. Knows nothing of how conversations are kept.
"""

from __future__ import annotations

from callboard.agent import Conversation
from callboard.errors import CallerError


def choose_conversation(*, latest: bool, resume: str, fork: str) -> Conversation:
    """A new conversation, the latest one, the named one, or a fork of one. Raises CallerError."""
    if latest + bool(resume) + bool(fork) > 1:
        raise CallerError("only one of --continue, --resume and --fork can be meant")
    if latest:
        return Conversation.latest()
    if resume:
        return Conversation.resume(resume)
    if not fork:
        return Conversation.begin()
    identifier, at, rounds = fork.partition("@")
    if at and not rounds.isdecimal():
        raise CallerError("the round is a number", path=f"--fork {fork}", hint="write ID@ROUND, such as ID@2")
    return Conversation.resume(identifier).fork(int(rounds) if at else None)
