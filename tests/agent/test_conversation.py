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
