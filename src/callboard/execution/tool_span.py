"""The span of a tool call if telemetry is on: `execute_tool NAME`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from callboard.core import ResultCanister
from callboard.execution.execute import failure_category
from callboard.telemetry import names, open_span, record
from callboard.telemetry.content import encode_object, encode_result
from callboard.text.display import display
from callboard.tools import Invoker

_MAX_NAME: Final = 100
_MAX_DESCRIPTION: Final = 500


async def run_in_span(
    invoker: Invoker, arguments: Mapping[str, Any], identifier: str, run: Callable[[], Awaitable[ResultCanister]]
) -> ResultCanister:
    """Run a call within its span. The tool's requests, commands and nested runs are children of this span."""
    name = display(invoker.name, _MAX_NAME)
    about = {names.OPERATION: names.EXECUTE_TOOL, names.TOOL_NAME: name}
    more = {names.TOOL_CALL_ID: display(identifier, _MAX_NAME), names.TOOL_TYPE: "function"}
    with open_span(f"{names.EXECUTE_TOOL} {name}", attributes={**about, **more}) as span:
        if invoker.description:
            span.set({names.TOOL_DESCRIPTION: display(invoker.description, _MAX_DESCRIPTION)})
        if span.max_content:
            span.set_content(names.TOOL_ARGUMENTS, encode_object(arguments, span.max_content))
        try:
            result = await run()
            if result.error is not None:
                span.fail(result.error.category)
            elif span.max_content:
                span.set_content(names.TOOL_RESULT, encode_result(result, span.max_content))
        except BaseException as failure:
            span.fail(failure_category(failure))
            raise
        finally:
            failed = {names.ERROR_TYPE: span.error_type} if span.error_type else {}
            record(names.TOOL_DURATION, span.seconds, {**about, **failed})
        return result
