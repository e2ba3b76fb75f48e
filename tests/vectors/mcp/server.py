"""A server of MCP 2025-11-25 on standard input and output that says what is in a JSON file.

`python server.py FILE`: {"tools": [...], "results": {NAME: RESULT}, "instructions": ...}. The file is read for every
request. The tool `touch` tells that the tools changed; one without a result gets its arguments back.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def say(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(method, params, said):
    if method == "initialize":
        kinds = [kind for kind in ("tools", "resources", "prompts") if kind in said]
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {kind: {"listChanged": True} for kind in kinds},
            "serverInfo": {"name": "vector", "version": "1"},
            "instructions": said.get("instructions", ""),
        }
    if method.endswith("/list"):
        kind = {"resources/templates/list": "resourceTemplates"}.get(method, method.removesuffix("/list"))
        return {kind: said.get(kind, [])} if kind in said else None
    if method == "tools/call":
        name = params["name"]
        if name == "environment":
            return {"content": [{"type": "text", "text": json.dumps(dict(os.environ))}]}
        if name == "touch":
            say(method="notifications/tools/list_changed")
        if name == "steps":
            token = params["_meta"]["progressToken"]
            told = {"progressToken": token, "progress": 1, "total": 2, "message": "half"}
            say(method="notifications/progress", params=told)
            log = {"level": "warning", "data": "careful"}
            say(method="notifications/message", params=log)
        default = {"content": [{"type": "text", "text": json.dumps(params.get("arguments"))}]}
        return said.get("results", {}).get(name, default)
    if method == "resources/read":
        return {"contents": said["read"][params["uri"]]}
    if method == "prompts/get":
        text = said["get"][params["name"]].format(**params.get("arguments", {}))
        return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
    return {} if method in {"ping", "logging/setLevel"} else None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = answer(message["method"], message.get("params", {}), json.loads(Path(sys.argv[1]).read_text()))
    outcome = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
    say(id=message["id"], **outcome)
