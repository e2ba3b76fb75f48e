"""Tools that are no functions, and namespaces: on every wire they are declared, called and answered."""

import msgspec
from tests.tables import table

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


@table("wire", WIRES)
def test_a_custom_tool_is_sent(wire):
    lowered = WIRES[wire].encode_request(Request("m", CALLED, tools=(PATCH,)))
    body = msgspec.json.encode(lowered.body).decode()
    assert "apply_patch" in body
    assert "*** Begin" in body
    assert "start: /.+/" in body
    assert "Done." in body


SEARCH = ToolDeclaration("tool_search", "Finds tools.", {"type": "object", "properties": {}}, kind="search")
SPACED = ToolDeclaration("ns__f", "Does.", {"type": "object", "properties": {}}, namespace="ns")


@table("wire", sorted({*WIRES} - {"responses"}))
def test_a_search_is_a_function_and_namespaces_are_not_described(wire):
    request = Request("m", CALLED[:1], (SEARCH, SPACED), namespaces={"ns": "The namespace."})
    lowered = WIRES[wire].encode_request(request)
    assert lowered.dropped == ("description of the namespace ns",)
    body = msgspec.json.encode(lowered.body).decode()
    assert '"tool_search"' in body
    assert '"ns__f"' in body
    assert "The namespace." not in body
