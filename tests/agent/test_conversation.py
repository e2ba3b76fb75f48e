from datetime import UTC, datetime, timedelta

import pytest

from callboard import Conversation
from callboard.core import AssistantCanister, InvocationCanister, ResultCanister, RolledBack, UserCanister
from callboard.errors import CallerError

TALK = [
    UserCanister("one"),
    AssistantCanister("looking"),
    InvocationCanister("c", "f", {}),
    ResultCanister(invocation_id="c", content="r"),
    AssistantCanister("first"),
    UserCanister("two"),
    AssistantCanister("second"),
]


@pytest.fixture
def talk(tmp_path):
    conversation = Conversation.begin(tmp_path)
    for canister in TALK:
        conversation.append(canister)
    return conversation


def test_what_was_said_is_there_again(talk, tmp_path):
    assert Conversation.resume(talk.identifier, tmp_path).canisters == TALK
    assert Conversation.latest(tmp_path).identifier == talk.identifier


def test_going_back_leaves_the_file_as_it_was(talk, tmp_path):
    before = talk.path.read_bytes()
    assert talk.rollback() == RolledBack(5)
    assert talk.canisters == TALK[:5]
    assert talk.rollback() == RolledBack(0)
    talk.append(UserCanister("anew"))
    assert Conversation.resume(talk.identifier, tmp_path).canisters == [UserCanister("anew")]
    assert talk.path.read_bytes().startswith(before)


@pytest.mark.parametrize(("rounds", "kept"), [(0, 1), (1, 4), (2, 5), (3, 7), (None, 7)])
def test_a_fork_begins_with_the_first_rounds(talk, tmp_path, rounds, kept):
    forked = talk.fork(rounds)
    assert forked.canisters == TALK[:kept]
    assert Conversation.resume(forked.identifier, tmp_path).canisters == TALK[:kept]
    assert talk.canisters == TALK


def test_what_is_not_there_is_said(talk, tmp_path):
    with pytest.raises(CallerError, match="it has 3 rounds, not 4"):
        talk.fork(4)
    with pytest.raises(CallerError, match="nope: no such conversation"):
        Conversation.resume("nope", tmp_path)
    with pytest.raises(CallerError, match="no such conversation"):
        Conversation.resume(f"../{tmp_path.name}/{talk.identifier}", tmp_path)
    with pytest.raises(CallerError, match="no conversation is kept yet"):
        Conversation.latest(tmp_path / "empty")
    with pytest.raises(CallerError, match="nothing to roll back"):
        Conversation.begin(tmp_path).rollback()


@pytest.mark.parametrize("rounds", [-1, 1.5, "1", True])
def test_a_number_of_rounds_that_cannot_be_is_refused(talk, rounds):
    with pytest.raises(CallerError, match=r"is not a number of rounds; give one from 0 up, or None for all$"):
        talk.fork(rounds)


@pytest.mark.parametrize("identifier", [None, 5, "", ".", "..", "a\0b", b"x", "x" * 5000])
def test_what_names_no_conversation_is_refused(tmp_path, identifier):
    with pytest.raises(CallerError, match="no such conversation"):
        Conversation.resume(identifier, tmp_path)


@pytest.mark.parametrize("item", ["Hi", {"role": "user", "content": "Hi"}, None, RolledBack(-1)])
def test_what_is_no_part_of_a_conversation_is_not_kept(talk, tmp_path, item):
    with pytest.raises(CallerError):
        talk.append(item)
    assert talk.canisters == Conversation.resume(talk.identifier, tmp_path).canisters == TALK


def test_what_is_kept_says_when_that_was(talk, tmp_path):
    begun = datetime.now(UTC) - timedelta(minutes=1)
    there = Conversation.resume(talk.identifier, tmp_path).canisters
    assert [each.timestamp for each in there] == [each.timestamp for each in talk.canisters]
    assert all(begun <= each.timestamp <= datetime.now(UTC) for each in there)
    talk.append(UserCanister("old", timestamp=begun))
    assert talk.canisters[-1].timestamp == begun
