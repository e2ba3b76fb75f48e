"""A custom tool takes one text; on every wire it is declared, called and answered."""

import msgspec
import pytest

from callboard.core import CUSTOM_KEY, InvocationCanister, Request, ResultCanister, ToolDeclaration, UserCanister
from callboard.wires import WIRES

PATCH = ToolDeclaration(
    "apply_patch",
    "Applies a patch.",
    kind="custom",
    grammar={"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
)
CALLED = (
    UserCanister("Mend it."),
    InvocationCanister("call_1", "apply_patch", {CUSTOM_KEY: "*** Begin"}, '{"input":"*** Begin"}'),
    ResultCanister(invocation_id="call_1", content="Done."),
)


@pytest.mark.parametrize("wire", WIRES)
def test_a_custom_tool_is_sent(wire):
    lowered = WIRES[wire].encoder().encode(Request("m", CALLED, tools=(PATCH,)))
    body = msgspec.json.encode(lowered.body).decode()
    assert "apply_patch" in body
    assert "*** Begin" in body
    assert "start: /.+/" in body
    assert "Done." in body
