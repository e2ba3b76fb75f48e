from __future__ import annotations

import pytest

from callboard import Ensemble, Invoker, tool
from callboard.tools import Policy, Rule


def invoker(name, ensemble="", *, approval=False):
    @tool(name=name, approval=approval)
    def act() -> None:
        """Act."""

    return Ensemble(ensemble, [act]).access_invoker(name) if ensemble else Invoker.of(act)


DELETE = invoker("delete_file", "io")
READ = invoker("read_file", "io")
DEPLOY = invoker("deploy", "ci", approval=True)
LOOSE = invoker("read_file")


@pytest.mark.parametrize(
    ("rules", "asked", "permission", "why"),
    [
        ([], READ, "allow", "no rule forbids it"),
        ([], DEPLOY, "ask", "deploy asks for approval before each call"),
        ([("*", "deny")], READ, "deny", "the rule '*' says deny"),
        ([("read_*", "ask")], READ, "ask", "the rule 'read_*' says ask"),
        ([("read_*", "ask")], DELETE, "allow", "no rule forbids it"),
        ([("io/*", "deny")], DELETE, "deny", "the rule 'io/*' says deny"),
        ([("io/*", "deny")], DEPLOY, "ask", "deploy asks for approval before each call"),
        ([("io/*", "deny")], LOOSE, "allow", "no rule forbids it"),
        ([("READ_*", "deny")], READ, "allow", "no rule forbids it"),
        ([("*", "deny"), ("read_*", "allow")], READ, "allow", "the rule 'read_*' says allow"),
        ([("*", "deny"), ("read_*", "allow")], DELETE, "deny", "the rule '*' says deny"),
        ([("read_*", "allow"), ("*", "deny")], READ, "deny", "the rule '*' says deny"),
        ([("deploy", "allow")], DEPLOY, "allow", "the rule 'deploy' says allow"),
        ([("[dr]e*_file", "ask")], DELETE, "ask", "the rule '[dr]e*_file' says ask"),
    ],
)
def test_the_last_rule_that_matches_decides(rules, asked, permission, why):
    assert Policy(rules).decide(asked) == (permission, why)
    assert Policy([Rule(*rule) for rule in rules]).decide(asked) == (permission, why)
