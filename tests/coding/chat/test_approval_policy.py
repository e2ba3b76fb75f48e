from __future__ import annotations

import asyncio

import pytest

from callboard.coding.agents.job_request import JobRequest
from callboard.coding.chat.approval_policy import ApprovalPolicy
from callboard.coding.tools import make_ensemble
from callboard.coding.workspace.workspace import Workspace
from callboard.configuration import load_settings
from callboard.core import InvocationCanister
from callboard.tools import Ensemble


def read_file(path: str) -> str:
    """Read something."""
    return path


def grep(pattern: str) -> str:
    """Search something."""
    return pattern


class Person:
    """Keeps the patterns that it was asked about."""

    def __init__(self):
        self.patterns = []
        self.rules = []

    async def __call__(self, invocation, why, *, changes=(), pattern=None):
        self.patterns.append(pattern)
        return "deny"


def make_policy(directory, person, ensembles, workspace):
    request = JobRequest(kind="chat", directory=directory, settings=load_settings({}, directory, {}))
    return ApprovalPolicy(
        request, person, access="edit", workspace=workspace, ensembles=ensembles, on_answer=lambda _: None
    )


def test_a_person_is_asked_about_an_echo_of_a_free_call(tmp_path):
    workspace, person = Workspace(tmp_path), Person()
    ours = make_ensemble(workspace, ["read_file"], single=True)
    policy = make_policy(tmp_path, person, [ours], workspace)
    call = InvocationCanister("c1", "read_file", {"path": "a"}, "", quoted_from="the file 'a.md'")
    assert asyncio.run(policy.approve(call, "it repeats a source")) == "deny"
    assert len(person.patterns) == 1


@pytest.mark.parametrize("ensemble", ["theirs", "*"])
def test_the_name_of_a_tool_of_ours_makes_no_other_tool_free(tmp_path, ensemble):
    workspace, person = Workspace(tmp_path), Person()
    ours = make_ensemble(workspace, ["read_file", "bash"], single=True)
    others = Ensemble(ensemble, [read_file, grep])
    policy = make_policy(tmp_path, person, [ours, others], workspace)
    own = ours.invokers["read_file"]
    assert policy.decide(own, {"path": "a"}).permission == "allow"
    assert policy.decide(others.invokers["read_file"], {"path": "a"}).permission == "ask"
    assert policy.decide(others.invokers["grep"], {"pattern": "a"}).permission == "ask"
    assert (policy.action_of(own, {}), policy.action_of("grep", {})) == ("read_file", "")
    asyncio.run(policy.approve(InvocationCanister("c1", "grep", {"pattern": "a"}, ""), "may grep run"))
    # A pattern that would allow more than this tool is not offered.
    assert person.patterns == ["theirs/grep" if ensemble == "theirs" else ""]
