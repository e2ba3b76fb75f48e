"""The response object, the fields of a reply besides its output, and a client's items as a server lists them.

Laws: every field that the Open Responses specification requires is there, and none is null where it allows no null.
An item gets the type, the identifier and the parts that a client may omit; nothing of it is changed, and the same input
gives the same items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from callboard.core import ReplyFailed, Request, Usage
from callboard.wires.responses.request import encode_request

_PREFIXES: Mapping[str, str] = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "compaction": "cmp",
}


def input_items(value: Any) -> list[Any]:
    """The items of a body's `input`: a text is one message of the user."""
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    return list(value)


def complete_items(items: Iterable[Mapping[str, Any]], base: str) -> list[dict[str, Any]]:
    """The items with type and identifier; those without one get it from `base` and their place."""
    return [_complete_item(item, base, place) for place, item in enumerate(items)]


def _complete_item(item: Mapping[str, Any], base: str, place: int) -> dict[str, Any]:
    kind = item.get("type") or ("message" if "role" in item else "unknown")
    if not isinstance(kind, str):
        kind = "unknown"
    identifier = item.get("id")
    identifier = (
        identifier if isinstance(identifier, str) and identifier else f"{_PREFIXES.get(kind, 'item')}_{base}_in{place}"
    )
    whole = {**item, "type": kind, "id": identifier}
    if kind == "message":
        whole["content"] = _parts(item.get("content"), item.get("role"))
        whole.setdefault("status", "completed")
    elif kind in {"function_call", "function_call_output"}:
        whole.setdefault("status", "completed")
    return whole


def _parts(content: Any, role: Any) -> list[Any]:
    if isinstance(content, str):
        is_output = role == "assistant"
        part = {"type": "output_text", "annotations": [], "logprobs": []} if is_output else {"type": "input_text"}
        return [{**part, "text": content}]
    return [
        {"detail": "auto", **part} if isinstance(part, Mapping) and part.get("type") == "input_image" else part
        for part in content or ()
    ]


_DEFAULTS: Mapping[str, Any] = {
    "previous_response_id": None,
    "instructions": None,
    "truncation": "disabled",
    "parallel_tool_calls": True,
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_logprobs": 0,
    "temperature": 1.0,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "store": False,
    "background": False,
    "service_tier": "default",
    "metadata": {},
    "safety_identifier": None,
    "prompt_cache_key": None,
}
WARNING = "callboard_incomplete"
_LONGEST_VALUE = 512
"""Characters of a value of metadata, as the specification has it."""
_FUNCTION = ("name", "description", "parameters", "strict")


class ResponseObject:
    """The response object of one reply; the fields that stay the same are made once."""

    def __init__(
        self,
        *,
        identifier: str,
        model: str,
        created: int,
        request: Request | None,
        echo: Mapping[str, Any] | None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._clock = clock
        echo = _request_fields(request) if echo is None else echo
        self._fixed: dict[str, Any] = {
            "id": identifier,
            "object": "response",
            "created_at": created,
            "model": model,
            **{name: default if echo.get(name) is None else echo[name] for name, default in _DEFAULTS.items()},
            "tools": [_flat(tool) for tool in _list(echo.get("tools"))],
            "tool_choice": _choice(echo.get("tool_choice")),
            "text": _text(echo.get("text")),
            "reasoning": {"effort": None, "summary": None} | _mapping(echo.get("reasoning")),
        }

    def add_warning(self, text: str) -> None:
        """Adds to the metadata, which every client may read, why the reply is incomplete."""
        metadata = _mapping(self._fixed["metadata"])
        warning = "; ".join(filter(None, (metadata.get(WARNING), text)))
        self._fixed["metadata"] = metadata | {WARNING: warning[:_LONGEST_VALUE]}

    def body(
        self,
        status: str,
        output: list[dict[str, Any]],
        *,
        usage: Usage | None = None,
        error: Mapping[str, str] | None = None,
        reason: str | None = None,
    ) -> dict[str, Any]:
        return {
            **self._fixed,
            "status": status,
            "completed_at": int(self._clock()) if self._clock is not None and status == "completed" else None,
            "output": output,
            "error": error,
            "incomplete_details": None if reason is None else {"reason": reason},
            "usage": None if usage is None else usage_body(usage),
        }


def usage_body(usage: Usage) -> dict[str, Any]:
    """The usage as OpenAI writes it. A null among its details fails a turn of Codex, so there is none."""
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_write},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }


def _request_fields(request: Request | None) -> dict[str, Any]:
    """The request's fields as a client of this wire would have sent them."""
    if request is None:
        return {}
    body = encode_request(replace(request, canisters=())).body
    return {name: value for name, value in body.items() if name not in {"model", "input", "include", "stream"}}


def _flat(tool: Any) -> Any:
    """A function in the flat shape with every field, as the specification wants it; other tools as they are."""
    if not isinstance(tool, Mapping) or tool.get("type", "function") != "function":
        return tool
    inner = _mapping(tool.get("function")) or tool
    return {"type": "function", **{name: inner.get(name) for name in _FUNCTION}}


def _choice(choice: Any) -> Any:
    if isinstance(choice, Mapping) and choice.get("type") == "function":
        return {"type": "function", "name": _mapping(choice.get("function")).get("name", choice.get("name"))}
    return choice if isinstance(choice, str | Mapping) and choice else "auto"


def _text(text: Any) -> dict[str, Any]:
    fields = _mapping(text)
    form = _mapping(fields.get("format")) or {"type": "text"}
    if form.get("type") == "json_schema":
        form = {"description": None, **form, "strict": bool(form.get("strict"))}
    return {**fields, "format": form}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def error_body(failure: ReplyFailed) -> dict[str, str]:
    """The `error` of a response that failed."""
    return {"code": failure.code or "server_error", "message": failure.message or failure.code}
