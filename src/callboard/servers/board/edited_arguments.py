"""Fields in which a person edits the arguments of a call, one for each argument, and the check of what was typed.

A text is edited as it is, any other value as JSON. An empty field leaves an argument out, except a text that the model
wrote. Without a schema there is one field, with all arguments as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from callboard.errors import CallerError
from callboard.jobs.job import Approval, find_mistakes
from callboard.servers.board.browser import Form
from callboard.servers.board.entry_view import read_object
from callboard.servers.board.templating import format_json
from callboard.text.display import make_visible
from callboard.text.truncate import truncate

_ALL: Final = "arguments"
_PREFIX: Final = "argument:"
_MAX_FIELDS: Final = 50
"""Maximum arguments with a field each."""
_MAX_HINT: Final = 200
_MAX_ROWS: Final = 12


class ArgumentField(NamedTuple):
    """A field of the form: its `name` in the form, its label, a hint, its text, and what is wrong with it."""

    name: str
    label: str
    text: str
    hint: str = ""
    mistake: str = ""

    @property
    def rows(self) -> int:
        return min(max(self.text.count("\n") + 1, len(self.text) // 80 + 1), _MAX_ROWS)


def list_fields(approval: Approval) -> Sequence[ArgumentField]:
    """Return the fields for the arguments of a call, as the model wrote them."""
    arguments, properties = approval.arguments or {}, _properties(approval)
    names = [*arguments, *[name for name in properties if name not in arguments]]
    if not properties or len(names) > _MAX_FIELDS:
        return [ArgumentField(_ALL, "All arguments, as JSON", format_json(arguments))]
    required = (approval.parameters or {}).get("required", [])
    return [
        ArgumentField(
            f"{_PREFIX}{name}",
            name,
            _format_value(arguments[name], properties.get(name)) if name in arguments else "",
            _describe(properties.get(name), is_required=isinstance(required, list) and name in required),
        )
        for name in names
    ]


def read_edited(approvals: Sequence[Approval], form: Form) -> tuple[Sequence[ArgumentField], dict[str, Any]]:
    """Return the fields with what was typed and what is wrong with it, and the arguments.

    Raises CallerError if the call does not wait any more.
    """
    question = form.get("call", ""), form.get("digest", "")
    approval = next((each for each in approvals if (each.call_id, each.digest) == question), None)
    if approval is None:
        raise CallerError("the call has changed, or does not wait any more", hint="go back and reload the page")
    fields = [
        each._replace(text=form.get(each.name, each.text).replace("\r\n", "\n")) for each in list_fields(approval)
    ]
    if fields and fields[0].name == _ALL:
        arguments = read_object(fields[0].text.strip() or "null")
        if arguments is None:
            return [fields[0]._replace(mistake="This is not valid JSON. Enter all arguments as one object.")], {}
        reason = "; ".join([f"{each.path}: {each.message}" for each in find_mistakes(approval, arguments)])
        return [fields[0]._replace(mistake=reason)], arguments
    arguments, mistakes = {}, {}
    for each in fields:
        try:
            _read_field(each, approval, arguments)
        except (ValueError, RecursionError):
            mistakes[each.label] = "This is not valid JSON. Text inside JSON needs double quotes."
    labels = [each.label for each in fields]
    for mistake in [] if mistakes else find_mistakes(approval, arguments):
        # The longest name that fits: a name may contain a dot.
        owner = max([each for each in labels if f"{mistake.path}.".startswith(f"{each}.")], key=len, default=labels[0])
        place = f"{mistake.path}: " if mistake.path != owner else ""
        mistakes[owner] = "; ".join([each for each in (mistakes.get(owner, ""), f"{place}{mistake.message}") if each])
    return [each._replace(mistake=mistakes.get(each.label, "")) for each in fields], arguments


def _read_field(field: ArgumentField, approval: Approval, arguments: dict[str, Any]) -> None:
    """Add the value of a field to the arguments. Raises ValueError or RecursionError if it is not JSON."""
    name, written = field.label, approval.arguments or {}
    schema = _properties(approval).get(name)
    if name in written and field.text.strip() == _format_value(written[name], schema).replace("\r\n", "\n").strip():
        arguments[name] = written[name]  # a browser changes line breaks
    elif _is_text(schema, written.get(name, "")):
        if field.text or name in written:
            arguments[name] = field.text
    elif field.text.strip():
        arguments[name] = msgspec.json.decode(field.text)


def _properties(approval: Approval) -> Mapping[str, Any]:
    properties = (approval.parameters or {}).get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _is_text(schema: Any, value: Any) -> bool:
    """Return whether a value is edited as a text. A text with invisible characters is edited as JSON, which spells them out."""
    if not isinstance(value, str) or make_visible(value) != value:
        return False
    return isinstance(schema, Mapping) and schema.get("type") == "string"


def _format_value(value: Any, schema: Any) -> str:
    return str(value) if _is_text(schema, value) else format_json(value)


def _describe(schema: Any, *, is_required: bool) -> str:
    schema = schema if isinstance(schema, Mapping) else {}
    kind = schema.get("type")
    words = [kind if isinstance(kind, str) and kind != "string" else "", "" if is_required else "optional"]
    described = schema.get("description")
    words.append(described if isinstance(described, str) else "")
    return truncate(", ".join([each for each in words if each]), _MAX_HINT)
