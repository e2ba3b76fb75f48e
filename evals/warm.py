"""Runs of tests that we wrote ourselves, made fast.

A process that has imported pytest forks for each tree; Go caches results by content. Nothing is confined.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import local

from evals.check import Run
from evals.suites import SUITES, Report, program, read_report, run_suite, variables
from evals.task import Language

SECONDS = 60
"""Time limit of one run of Python tests."""

SERVER = f"""
SECONDS = {SECONDS}
import os, signal, sys, pytest, _pytest.python, _pytest.terminal, _pytest.assertion.rewrite
arguments = sys.argv[1:]
for line in sys.stdin:
    folder, output = line.rstrip("\\n").split("\\t")
    child = os.fork()
    if child == 0:
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.chdir(folder)
        signal.alarm(SECONDS)
        code = int(pytest.main(arguments))
        sys.stdout.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@contextmanager
def warm_runs(go_cache: Path) -> Iterator[dict[Language, Run]]:
    """Give a function for each language that runs the tests of a tree, from any thread."""
    mine = local()
    servers: list[subprocess.Popen[str]] = []
    with TemporaryDirectory() as home:
        environment = {**variables(Path(home), go_cache), "GOFLAGS": "-mod=mod -trimpath -vet=off"}

        def python(folder: Path) -> Report:
            if not hasattr(mine, "server"):
                command = [program("python"), "-c", SERVER, *SUITES["python"].command[3:]]
                mine.server = subprocess.Popen(
                    command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
                servers.append(mine.server)
            output = Path(home) / f"{mine.server.pid}.txt"
            print(folder, output, sep="\t", file=mine.server.stdin, flush=True)
            code = int(mine.server.stdout.readline())
            return read_report("python", code, output.read_text("utf-8", "replace"))

        def other(language: Language) -> Run:
            return lambda folder: run_suite(language, folder, go_cache, environment=environment)

        yield {"python": python, "javascript": other("javascript"), "go": other("go")}
        for server in servers:
            with server:
                server.terminate()
