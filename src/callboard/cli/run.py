"""`callboard run`: one prompt, a model, tools.

Owns the command's life: what is asked before, what is left behind.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from callboard.cli.show import Display
from callboard.core import InvocationCanister, RunState, Verdict, encode_line

DEFAULT_MODEL = "local:qwen2.5-coder-0.5b"
EXIT_CODES: dict[RunState, int] = {"completed": 0, "failed": 1, "incomplete": 3, "cancelled": 130}


def run(
    prompt: Annotated[str, typer.Argument(help="What to ask. `-` reads it from standard input.", show_default=False)],
    model: Annotated[str, typer.Option(help="local:NAME, openai:NAME, or NAME with --base-url.")] = DEFAULT_MODEL,
    base_url: Annotated[
        str, typer.Option(help="A Chat Completions endpoint, such as http://127.0.0.1:8080/v1.", show_default=False)
    ] = "",
    tools: Annotated[
        list[str] | None, typer.Option(help="module:attribute or file.py[:attribute]; repeatable.", show_default=False)
    ] = None,
    mode: Annotated[
        str, typer.Option(help="native, structured, validated or parsed; else the profile's.", show_default=False)
    ] = "",
    max_rounds: Annotated[int, typer.Option(min=1, help="Replies that may call tools.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print every event as one line of JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show rounds, reasoning, notes and usage.")] = False,
) -> None:
    """Ask a model that can call your tools.

    The answer goes to standard output as it arrives; calls and results are shown on standard error.
    Exit codes: 0 completed, 1 failed, 2 wrong usage, 3 incomplete, 130 cancelled.
    An API key for --base-url is read from CALLBOARD_API_KEY.
    """
    from callboard.agent import Agent, Run, Transcript  # noqa: PLC0415  # not for --help
    from callboard.cli.models import pull_with_progress  # noqa: PLC0415
    from callboard.cli.toolbox import load_ensembles  # noqa: PLC0415
    from callboard.providers import access_model  # noqa: PLC0415

    display = Display(
        sys.stdout, sys.stderr, verbose=verbose, color=sys.stderr.isatty() and "NO_COLOR" not in os.environ
    )
    ensembles = load_ensembles(tools or [])
    provider, _, name = model.partition(":")
    if provider == "local" and not name.endswith(".gguf"):
        pull_with_progress(name)
    accessed = access_model(
        model,
        base_url=base_url,
        api_key=os.environ.get("CALLBOARD_API_KEY", "") if base_url else "",
        mode=mode,
        tell=display.tell,
    )
    transcript = Transcript(_new_conversation() / "messages.jsonl")

    async def approve(invocation: InvocationCanister, why: str) -> Verdict:
        display.tell(why, "33")
        return await _ask(invocation, display)

    agent = Agent(accessed, ensembles=ensembles, max_rounds=max_rounds, approve=approve, store=transcript)
    if provider == "local" and not as_json:
        display.tell(f"{model}: loading", "2")
    # Bytes that are no text, in a file or among the arguments, are no reason to fail.
    asked = sys.stdin.buffer.read() if prompt == "-" else os.fsencode(prompt)
    going: Run = agent.stream(asked.decode("utf-8", "replace"))

    async def follow() -> None:
        try:
            async for event in going:
                if as_json:
                    sys.stdout.buffer.write(encode_line(event) + b"\n")
                    sys.stdout.buffer.flush()
                else:
                    display.show(event)
        finally:
            await accessed.aclose()

    try:
        asyncio.run(follow())
    except KeyboardInterrupt:
        display.tell(f"cancelled; the transcript is kept in {transcript.path}")
        raise typer.Exit(EXIT_CODES["cancelled"]) from None
    result = going.result
    if result is None:
        raise AssertionError("a run ends with a result")
    if result.state == "incomplete" and not as_json:
        display.tell(f"incomplete: {result.why}", "33")
    if verbose or result.state != "completed":
        display.tell(f"the transcript is in {transcript.path}", "2")
    raise typer.Exit(EXIT_CODES[result.state])


async def _ask(invocation: InvocationCanister, display: Display) -> Verdict:
    """A person's answer; without a person it is no."""
    if not sys.stdin.isatty():
        display.tell("nobody is here to ask: denied")
        return "deny"
    from callboard.execution.threads import Threads  # noqa: PLC0415  # only where somebody is asked

    display.tell(f"run {invocation.name}? [y/N]")
    answer = await Threads(1).run(sys.stdin.readline)
    return "allow" if answer.strip().lower() in ("y", "yes") else "deny"


def _new_conversation() -> Path:
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    made = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    return Path(data) / "callboard" / "conversations" / made
