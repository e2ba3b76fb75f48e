"""The ReAct agent: another constructor, named states and results around a run of `Agent`.

The temperature never changes. Other agents raise it after a mistake, but models with a fixed temperature reject that,
and reading the mistake is what helps the model.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, overload

from msgspec.structs import replace

from callboard import core
from callboard.adapters import ToolCallingMode, mode_of
from callboard.agent.agent import Agent
from callboard.agent.arguments import check_arguments
from callboard.agent.run import RunResult as AgentResult
from callboard.dialects import ACTION, either
from callboard.errors import CallboardError, CallerError, DescriptorError, ToolDefinitionError
from callboard.loop import Limits
from callboard.profiles import ModeName, providers, resolve, split_provider
from callboard.providers import open_model
from callboard.providers.registry import PlannedModel
from callboard.tools import Ensemble, ToolLike

MAX_STEPS = 10
MAX_OBSERVATION = 500
"""Maximum characters of a result that `verbose` shows."""
MAX_PROMPT_FILE = 1024 * 1024
"""Maximum size of a prompt file, in bytes."""

INSTRUCTIONS = (
    "Answer the question. Use the tools for what you do not know: never guess, and answer only from what they gave."
)

_PAYLOADS = replace(ACTION, frames=tuple([replace(each, at_line_start=False) for each in ACTION.frames]))
"""The specification's payloads (a tool, an answer or a scratchpad), also if other words precede them in the line."""

State: TypeAlias = Literal["completed", "step_limit_reached", "error"]


class NoAnswer(CallboardError):
    """A run ended without a complete answer."""

    party = "model"


class StepLimitReached(NoAnswer):
    """The steps are used up, and the final attempt gave no answer either."""

    def __init__(self, message: str, *, steps_taken: int, final_attempt_made: bool) -> None:
        super().__init__(message, hint="raise max_steps, or ask for less at once")
        self.steps_taken = steps_taken
        self.final_attempt_made = final_attempt_made


@dataclass(frozen=True)
class FinalAnswer:
    """An answer. `source` says whether the model gave it on its own or was asked after its steps were used up."""

    value: str
    source: Literal["normal", "final_attempt"] = "normal"
    timestamp: datetime = field(default_factory=lambda: datetime.now(UTC))
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ReactResult:
    """The result of a run.

    `metadata` has the `canisters` that the run added, its `usage`, and in `why` the reason if it is incomplete.
    """

    output: str
    final_answer: FinalAnswer | None
    state: State
    steps_taken: int
    duration_seconds: float
    error: Exception | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


RunResult: TypeAlias = ReactResult
"""The specification's name. `callboard.agent.RunResult` is the result of an Agent's run."""


class ReactAgent:
    """Answer questions with tools.

    `tools` are Tools, functions or Invokers. `model` is a Model or a name. A name without a provider before its colon
    means OpenAI, or the server at `base_url`. `api_key` and `base_url` default to OPENAI_API_KEY and OPENAI_BASE_URL.
    `prompt_file` is a text file with the instructions; the list of the tools replaces `{tools}` in it. If
    `temperature` is None, the provider chooses. `max_tokens` limits each reply. AUTO selects the mode of `get_adapter`.

    Raises ValueError if there are no tools, two have the same name, or the mode is unknown. Raises CallerError if the
    model or the file cannot be used.
    """

    def __init__(  # noqa: PLR0917  # the specification's order
        self,
        tools: Iterable[ToolLike],
        model: core.Model | str = "gpt-4o-mini",
        api_key: str | None = None,
        prompt_file: str | Path | None = None,
        temperature: float | None = 0.7,
        max_tokens: int | None = None,
        tool_calling_mode: ToolCallingMode | str = ToolCallingMode.AUTO,
        *,
        base_url: str = "",
    ) -> None:
        self._ensemble = _ensemble(tools)
        check_arguments(model=model, temperature=temperature, max_tokens=max_tokens)
        mode = ToolCallingMode(tool_calling_mode)
        if isinstance(model, str):
            self._open = partial(_access, model, mode, api_key=api_key or "", base_url=base_url)
            self._open()  # raises now if the model cannot be used
        elif mode is not ToolCallingMode.AUTO or api_key or base_url:
            raise CallerError("a Model has its own mode, key and URL", path="model", hint="give its name instead")
        self._model = model
        self._controls = core.Controls(temperature=temperature, max_tokens=max_tokens)
        self._instructions = INSTRUCTIONS if prompt_file is None else self._read(Path(prompt_file))

    @overload
    async def run(
        self, question: str, *, max_steps: int = ..., verbose: bool = ..., return_result: Literal[False] = ...
    ) -> str: ...

    @overload
    async def run(
        self, question: str, *, max_steps: int = ..., verbose: bool = ..., return_result: Literal[True]
    ) -> ReactResult: ...

    async def run(
        self, question: str, *, max_steps: int = MAX_STEPS, verbose: bool = False, return_result: bool = False
    ) -> str | ReactResult:
        """Return the answer, or with `return_result` the result of the run, even if it failed.

        `max_steps` is the maximum of replies with calls; then the model is asked once more, without tools. `verbose`
        prints the steps to standard error. Raises StepLimitReached if that gave no answer, ProviderError if the
        provider failed, NoAnswer if the reply was cut or empty. With `return_result` the error is in `error` instead.
        """
        check_arguments(max_steps=max_steps)
        begun = time.monotonic()
        async with self._enter_model() as model:
            agent = Agent(
                model,
                ensembles=[self._ensemble],
                instructions=self._instructions,
                controls=self._controls,
                limits=Limits(rounds=max_steps, errors=None),
            )
            run = agent.stream(question)
            async for event in run:
                if verbose:
                    _show(event)
        result = _outcome(run.result, run.failure, max_steps, time.monotonic() - begun)
        if return_result:
            return result
        if result.error is not None:
            raise result.error
        return result.output

    @overload
    def run_sync(
        self, question: str, *, max_steps: int = ..., verbose: bool = ..., return_result: Literal[False] = ...
    ) -> str: ...

    @overload
    def run_sync(
        self, question: str, *, max_steps: int = ..., verbose: bool = ..., return_result: Literal[True]
    ) -> ReactResult: ...

    def run_sync(
        self, question: str, *, max_steps: int = MAX_STEPS, verbose: bool = False, return_result: bool = False
    ) -> str | ReactResult:
        """Do what `run` does, without an event loop."""
        running: Any = self.run(question, max_steps=max_steps, verbose=verbose, return_result=return_result)  # type: ignore[call-overload]  # one of the two
        result: str | ReactResult = asyncio.run(running)
        return result

    @asynccontextmanager
    async def _enter_model(self) -> AsyncGenerator[core.Model]:
        """Yield the model. A model with only a name is opened for this run and closed afterwards."""
        if not isinstance(self._model, str):
            yield self._model
            return
        model = self._open()
        try:
            yield model
        finally:
            await model.aclose()

    def _read(self, path: Path) -> str:
        try:
            with path.open("rb") as file:
                data = file.read(MAX_PROMPT_FILE + 1)
            text = data.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise CallerError(f"the prompt cannot be read: {error}", path=str(path)) from None
        if len(data) > MAX_PROMPT_FILE:
            raise CallerError(f"the prompt is larger than {MAX_PROMPT_FILE // 1024} KB", path=str(path))
        tools = self._ensemble.invokers.values()
        return text.replace("{tools}", "\n".join([f"- {tool.name}: {tool.description}" for tool in tools]))


def _ensemble(tools: Iterable[ToolLike]) -> Ensemble:
    try:
        ensemble = Ensemble("local", tools)
    except (DescriptorError, ToolDefinitionError) as error:
        raise ValueError(str(error)) from error
    if not ensemble.invokers:
        raise ValueError("ReactAgent needs at least one tool")
    return ensemble


def _access(name: str, mode: ToolCallingMode, *, api_key: str, base_url: str) -> PlannedModel:
    """Open the model of a name, at OpenAI if nothing names a server.

    For an endpoint of someone else, assume no more than `Agent` does: it may not support response schemas.
    """
    decided = mode_of(name) if mode is ToolCallingMode.AUTO else mode
    provider, _ = split_provider(name, providers())
    facts: dict[str, str] = {}
    if not provider:
        theirs = f"openai:{name}"
        openai = resolve(theirs).profile
        base_url = base_url or os.environ.get(openai.url_variable, "")
        if base_url.rstrip("/") in {"", openai.base_url}:
            name = theirs
        else:
            facts["key_variable"] = openai.key_variable
    asked_for = cast("ModeName", decided.value)
    model = open_model(name, base_url=base_url, api_key=api_key, mode=asked_for, profile=facts)
    plan = model.plan
    if plan.mode.declares == "prompt" and plan.watched is not None:
        model.plan = replace(plan, watched=either((_PAYLOADS, plan.watched)))
    return model


def _outcome(done: AgentResult, failure: Exception | None, max_steps: int, seconds: float) -> ReactResult:
    output = done.text
    answered = bool(output) and not isinstance(
        done.canisters[-1], core.ResultCanister
    )  # text beside a call is not an answer
    ran_out = done.state == "incomplete" and done.rounds > max_steps
    steps = min(done.rounds, max_steps)
    state: State = "error"
    error: Exception | None = None
    answer: FinalAnswer | None = None
    if done.state == "completed":
        state, answer = "completed", FinalAnswer(output)
    elif ran_out:
        state = "step_limit_reached"
        if answered:
            answer = FinalAnswer(output, "final_attempt")
        else:
            text = "Exceeded max steps without an answer."
            error = StepLimitReached(text, steps_taken=steps, final_attempt_made=True)
    else:
        error = failure or NoAnswer(done.why)
    return ReactResult(
        output=output,
        final_answer=answer,
        state=state,
        steps_taken=steps,
        duration_seconds=seconds,
        error=error,
        metadata={"canisters": done.canisters, "usage": done.usage, "why": done.why},
    )


def _show(event: core.Event) -> None:
    match event:
        case core.RoundStarted(number=number):
            line = f"step {number}"
        case core.InvocationEnded(name=name, raw=raw):
            line = f"  {name} {raw}"
        case core.ResultReady(canister=canister):
            line = f"  -> {canister.text[:MAX_OBSERVATION]}"
        case core.RunEnded(state=state):
            line = state
        case _:
            return
    sys.stderr.write(f"{line}\n")
