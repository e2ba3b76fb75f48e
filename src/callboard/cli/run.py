"""`callboard run`: one prompt, a model, tools.

Owns the command's life: what is asked before, what is left behind.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import redirect_stdout
from typing import Annotated

import typer

from callboard.cli import complete, interrupt, mcp_servers
from callboard.cli.display import Display
from callboard.core import InvocationCanister, RunState, Verdict, encode_line

# `callboard.configuration` has the same; it is not imported for --help.
DEFAULT_MODEL = "local:qwen2.5-coder-0.5b"
MAX_ROUNDS = 20
EXIT_CODES: dict[RunState, int] = {"completed": 0, "failed": 1, "incomplete": 3, "pending": 4, "cancelled": 130}


def run(
    prompt: Annotated[str, typer.Argument(help="What to ask. `-` reads it from standard input.", show_default=False)],
    model: Annotated[
        str,
        typer.Option(
            help="local:NAME, openai:NAME, ..., or NAME with --base-url; with commas, the next one where one fails.",
            show_default=DEFAULT_MODEL,
            autocompletion=complete.models,
        ),
    ] = "",
    base_url: Annotated[
        str, typer.Option(help="A Chat Completions endpoint, such as http://127.0.0.1:8080/v1.", show_default=False)
    ] = "",
    tools: Annotated[
        list[str] | None, typer.Option(help="module:attribute or file.py[:attribute]; repeatable.", show_default=False)
    ] = None,
    ensembles: Annotated[
        list[str] | None,
        typer.Option(
            help="A directory of ensembles, or a built-in one: io, coding, coding_single; repeatable.",
            show_default=False,
        ),
    ] = None,
    mcp: Annotated[
        list[str] | None,
        typer.Option(help="An mcp.json file, as other clients have it; repeatable.", show_default=False),
    ] = None,
    mode: Annotated[
        str,
        typer.Option(
            help="native, structured, validated or parsed; else the profile's.",
            show_default=False,
            autocompletion=complete.modes,
        ),
    ] = "",
    max_rounds: Annotated[
        int | None, typer.Option(min=1, help="Replies that may call tools.", show_default=str(MAX_ROUNDS))
    ] = None,
    latest: Annotated[
        bool, typer.Option("--continue", "-c", help="Go on with the conversation that was begun last.")
    ] = False,
    resume: Annotated[str, typer.Option(help="Go on with the conversation of this name.", show_default=False)] = "",
    fork: Annotated[
        str,
        typer.Option(help="ID@ROUND: a new one that begins with that one's first ROUND replies.", show_default=False),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print every event as one line of JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show rounds, reasoning, notes and usage.")] = False,
) -> None:
    """Ask a model that can call your tools.

    The answer goes to standard output as it arrives; calls and results are shown on standard error.

    Exit codes: 0 completed, 1 failed, 2 wrong usage, 3 incomplete, 4 calls wait for results from outside,
    130 cancelled.

    An API key for --base-url is read from CALLBOARD_API_KEY. What is not given here is taken from the
    environment and from callboard.toml.
    """
    from callboard.agent import Agent, Run  # noqa: PLC0415  # not for --help
    from callboard.cli.conversations import choose_conversation  # noqa: PLC0415
    from callboard.cli.load_tools import Toolbox, select_servers  # noqa: PLC0415
    from callboard.cli.models import open_model  # noqa: PLC0415
    from callboard.cli.settings import module_directory, settings_here  # noqa: PLC0415
    from callboard.loop import Limits  # noqa: PLC0415

    out = sys.stdout
    display = Display(out, sys.stderr, verbose=verbose, color=sys.stderr.isatty() and "NO_COLOR" not in os.environ)
    settings = settings_here(
        model=model, base_url=base_url, tools=tools, ensembles=ensembles, mode=mode, max_rounds=max_rounds
    )
    conversation = choose_conversation(latest=latest, resume=resume, fork=fork)
    model_used = open_model(settings, display.tell)
    toolbox = Toolbox(
        settings.tools,
        settings.ensembles,
        display.tell,
        select_servers(settings, mcp).values(),
        tools_from=module_directory(settings, "tools"),
        ensembles_from=module_directory(settings, "ensembles"),
        **mcp_servers.server_options(display, conversation.path.parent, model_used, verbose=verbose),
    )

    async def approve(invocation: InvocationCanister, why: str) -> Verdict:
        # All of it, and escaped: nobody approves what was not shown.
        display.tell(f"{why}: {json.dumps(invocation.arguments)}", "33")
        return await _ask_approval(invocation, display)

    # Bytes that are no text, in a file or among the arguments, are no reason to fail.
    prompt_bytes = sys.stdin.buffer.read() if prompt == "-" else os.fsencode(prompt)

    async def run_agent() -> Run:
        async with toolbox as prepared:
            agent = Agent(
                model_used,
                ensembles=prepared,
                instructions=settings.instructions,
                limits=Limits(rounds=settings.max_rounds),
                policy=settings.policy,
                approve=approve,
                store=conversation,
            )
            if settings.model.startswith("local:") and not as_json:
                display.tell(f"{settings.model.partition(',')[0].strip()}: loading", "2")
            agent_run = agent.stream(prompt_bytes.decode("utf-8", "replace"), history=conversation.canisters)
            try:
                async for event in agent_run:
                    if as_json:
                        out.buffer.write(encode_line(event) + b"\n")
                        out.buffer.flush()
                    else:
                        display.show(event)
            finally:
                await model_used.aclose()
        return agent_run

    def report_cancelled() -> None:
        note = f"; the transcript is kept in {conversation.path}" if conversation.path.exists() else ""
        display.tell(f"cancelled{note}")

    # What tools print is no part of the answer.
    with redirect_stdout(sys.stderr):
        agent_run = interrupt.run(run_agent(), report_cancelled)
    result = agent_run.result
    if result.state == "incomplete" and not as_json:
        display.tell(f"incomplete: {result.why}", "33")
    if verbose or result.state != "completed":
        display.tell(f"the transcript is in {conversation.path}", "2")
    raise typer.Exit(EXIT_CODES[result.state])


async def _ask_approval(invocation: InvocationCanister, display: Display) -> Verdict:
    """A person's answer; without a person it is no."""
    if not sys.stdin.isatty():
        display.tell("nobody is here to ask: denied")
        return "deny"
    from callboard.execution.thread_pool import ThreadPool  # noqa: PLC0415  # only where somebody is asked

    display.tell(f"run {invocation.name}? [y/N]")
    answer = await ThreadPool(1).run(sys.stdin.readline)
    return "allow" if answer.strip().lower() in ("y", "yes") else "deny"
