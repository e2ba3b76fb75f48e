"""Run the calls of a task on BFCL's simulated APIs, in a process of their own, and let the published checker judge them.

A turn is solved if the model's calls left every API in the same state as the right calls. The model must also have got
the results of the right calls, in this turn or an earlier one. A turn without right calls is always solved: the model
lacks a tool or a fact, and may try. These are the rules of bfcl-eval's `multi_turn_checker`.

Laws: the process reads JSON, and runs no text of a model as code. If a call takes too long, the turn is missed and the
process is killed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from callboard.core import Canister, InvocationCanister, ResultCanister, Usage, contents, error_result
from callboard.errors import CallerError
from callboard.evaluation.task import Attempt, Judgement, Label, Simulation, Step, Task

MAX_ROUNDS: Final = 20
"""Maximum replies with calls in a turn, as in the official runner. One more, and the task is missed."""
TIMEOUT: Final = 20.0
"""Time limit of the calls of a reply, in seconds. They need milliseconds, unless a model asks for a huge number."""
_START_TIMEOUT: Final = 120.0
"""Time limit of the start, in seconds. The first one compiles the modules."""
_LINE: Final = 16 * 1024 * 1024
"""Maximum bytes of an answer of the process."""
_PROGRAM: Final = Path(__file__).with_name("simulation_process.py")
_LABELS: Final[dict[str, Label]] = {
    "empty_turn_model_response": "no_call",
    "instance_state_mismatch": "wrong_state",
    "execution_response_mismatch": "missing_result",
}
"""Our labels for the checker's types of errors."""

Ask: TypeAlias = Callable[[Sequence[Canister]], Awaitable[tuple[Attempt, list[Canister]]]]
"""Asks for the reply to a conversation. Returns the attempt, and the reply's canisters."""


class _SimulationError(Exception):
    """The process gave no answer."""


class SimulatedApis:
    """The simulated APIs of one task in their process, which reads `questions` and writes `answers`."""

    def __init__(self, questions: asyncio.StreamWriter, answers: asyncio.StreamReader) -> None:
        self._questions = questions
        self._answers = answers

    async def start(self, name: str, simulation: Simulation) -> None:
        """Create the APIs of a task's simulation."""
        await self._ask({"id": name, **msgspec.structs.asdict(simulation)}, _START_TIMEOUT)

    async def run(self, calls: Sequence[InvocationCanister]) -> list[str]:
        """Run the model's calls, and return their results."""
        answer = await self._ask({"calls": [(call.name, call.arguments or {}) for call in calls]})
        results: list[str] = answer["results"]
        return results

    async def end_turn(self, step: Step) -> Judgement:
        """Run the right calls of a turn, and judge the turn."""
        calls = [(call.name, call.positional, call.arguments) for call in step.right_calls]
        answer = await self._ask({"right_calls": calls})
        return Judgement(False, _LABELS[answer["type"]], answer["why"]) if answer else Judgement(True)

    async def _ask(self, question: Any, seconds: float | None = None) -> Any:
        seconds = seconds or TIMEOUT
        try:
            async with asyncio.timeout(seconds):
                self._questions.write(msgspec.json.encode(question) + b"\n")
                await self._questions.drain()
                return msgspec.json.decode(await self._answers.readline())
        except TimeoutError:
            raise _SimulationError(f"the simulated APIs did not answer in {seconds:g} seconds") from None
        except (OSError, ValueError, msgspec.MsgspecError):
            raise _SimulationError("the simulated APIs stopped, or answered too much") from None


@asynccontextmanager
async def simulate(task: Task, folder: Path) -> AsyncIterator[SimulatedApis | None]:
    """Start the APIs of a task's simulation, if it has one. `folder` has the published modules.

    Raises CallerError if they do not start.
    """
    if task.simulation is None:
        yield None
        return
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", _PROGRAM, folder),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        cwd=folder,
        env={name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ},  # Python needs it on Windows
        limit=_LINE,
    )
    apis = SimulatedApis(cast("asyncio.StreamWriter", process.stdin), cast("asyncio.StreamReader", process.stdout))
    try:
        await apis.start(task.identifier, task.simulation)
        yield apis
    except _SimulationError as error:
        hint = "delete this folder, and the same command downloads it again"
        raise CallerError(f"{task.identifier}: {error}", path=str(folder), hint=hint) from None
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def play_turn(
    ask: Ask, apis: SimulatedApis, step: Step, history: Sequence[Canister]
) -> tuple[Attempt, list[Canister]]:
    """Ask until the model answers in words, and run its calls.

    A reply with a call that cannot be read ends the turn, and none of its calls run, as in the official runner.

    Args:
        ask: Asks for one reply.
        apis: The simulated APIs.
        step: The turn.
        history: The conversation, with the question of this turn.

    Returns:
        One attempt for all replies, with the judgement of the turn, and the canisters after the history.
    """
    canisters: list[Canister] = []
    attempts: list[Attempt] = []
    judgement: Judgement | None = None
    try:
        while judgement is None:
            attempt, reply = await ask([*history, *canisters])
            attempts.append(attempt)
            canisters += reply
            if attempt.failure:
                break
            if not attempt.calls or any(call.arguments is None for call in attempt.calls):
                canisters += [
                    error_result(call.identifier, "validation", "not a JSON object") for call in attempt.calls
                ]
                judgement = await apis.end_turn(step)
                break
            results = await apis.run(attempt.calls)
            canisters += [
                ResultCanister(contents(text), invocation_id=call.identifier)
                for call, text in zip(attempt.calls, results, strict=True)
            ]
            if len(attempts) > MAX_ROUNDS:
                judgement = Judgement(False, "too_many_rounds", f"more than {MAX_ROUNDS} replies had calls")
    except _SimulationError as error:
        judgement = Judgement(False, "wrong_state", str(error))
    whole = replace(
        attempts[-1],
        calls=tuple([call for each in attempts for call in each.calls]),
        notes=tuple([note for each in attempts for note in each.notes]),
        seconds=sum(each.seconds for each in attempts),
        usage=sum((each.usage for each in attempts), Usage()),
        scores={},
        judgement=judgement,
    )
    return whole, canisters
