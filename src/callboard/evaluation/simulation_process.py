"""The process that runs BFCL's simulated APIs, beside the published checker of its tasks of several turns.

The process is started with `-I -S`, so it imports only the standard library and the modules in the folder that is its
argument. Each line of input is a JSON object, and so is each line of output:

| input | output | meaning |
| --- | --- | --- |
| `id`, `classes`, `state`, `long_context` | `{}` | create each API twice: for the model and for the right calls |
| `calls`: pairs of a name and arguments | `results`: texts | run calls of the model |
| `right_calls`: a name, positional arguments, arguments | `type`, `why` | run them, and compare states and results |

Law: a call is the name of a public method and JSON arguments. No text is run as code.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

_MEMORY: Final = 2 << 30
"""Maximum bytes of memory of this process."""
_REASON: Final = 500
"""Maximum characters of a reason."""


class _Simulation:
    """The APIs of one task, as the model and the right calls have changed them."""

    def __init__(self, question: Mapping[str, Any]) -> None:
        # The modules are found in the folder of the argument.
        from bfcl_eval.eval_checker.multi_turn_eval import (  # type: ignore[import-not-found]  # noqa: PLC0415
            multi_turn_checker,
            multi_turn_utils,
        )

        self._checker = multi_turn_checker
        self._model, self._right = [
            multi_turn_utils.execute_multi_turn_func_call(
                [], question["state"], question["classes"], who, question["id"], long_context=question["long_context"]
            )[1]
            for who in ("model", "right")
        ]
        self._all_results: list[str] = []
        self._has_called = False

    def run(self, calls: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
        """Run calls of the model."""
        results = [_call(self._model, name, (), arguments) for name, arguments in calls]
        self._has_called = True
        self._all_results += results
        return {"results": results}

    def end_turn(self, right_calls: Iterable[tuple[str, Iterable[Any], Mapping[str, Any]]]) -> dict[str, Any]:
        """Run the right calls of a turn, and compare. A turn without right calls is not judged."""
        has_called, self._has_called = self._has_called, False
        results = [_call(self._right, *each) for each in right_calls]
        if not results:
            return {}
        if not has_called:
            return {"type": "empty_turn_model_response", "why": "expected a tool call, got none"}
        verdict = self._checker.state_checker(self._model, self._right)
        if verdict["valid"]:
            verdict = self._checker.response_checker(self._all_results, results, 0)
        if verdict["valid"]:
            return {}
        details = verdict["details"]
        why = f"{verdict['error_message']} {details.get('differences') or details.get('missing_items')}"
        return {"type": verdict["error_type"].partition(":")[2], "why": why[:_REASON]}


def _call(instances: Mapping[str, Any], name: str, positional: Iterable[Any], arguments: Mapping[str, Any]) -> str:
    """Call a method, and return its result as a text in the same way as the official runner."""
    methods: dict[str, Callable[..., Any]] = {
        each: method
        for instance in instances.values()
        for each, method in inspect.getmembers(instance, inspect.ismethod)
        if not each.startswith("_")
    }
    if name not in methods:
        return f"Error during execution: name {name!r} is not defined"
    try:
        result = methods[name](*positional, **arguments)
    except Exception as error:  # noqa: BLE001  # the model reads it
        return f"Error during execution: {error}"
    if isinstance(result, dict):
        with suppress(TypeError, ValueError):
            return json.dumps(result)
    return str(result)


def _limit_resources() -> None:
    """Limit memory, and write no more files. Windows has no such limits."""
    with suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def main() -> None:
    """Answer each line of input."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    sys.stdout = sys.stderr  # what the modules print is not an answer
    sys.path.append(sys.argv[1])
    simulation = _Simulation(json.loads(sys.stdin.readline()))
    _limit_resources()
    answer: dict[str, Any] = {}
    while True:
        print(json.dumps(answer), file=answers, flush=True)
        if not (line := sys.stdin.readline()):
            return
        question = json.loads(line)
        answer = (
            simulation.run(question["calls"]) if "calls" in question else simulation.end_turn(question["right_calls"])
        )


if __name__ == "__main__":
    main()
