"""A server of both eras in the standard library alone, so that it starts at once, with every bad habit as a flag.

What it is asked is written to the file `--journal`, a line each. `die`, `hang` and `freeze` are tools that do so, the last for good.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

given = argparse.ArgumentParser()
given.add_argument("--journal", default=os.devnull)
given.add_argument("--era", default="legacy", choices=["legacy", "modern"])
given.add_argument("--deaf-to-discover", action="store_true")
given.add_argument("--ends-at-discover", action="store_true", help="as programs of the Rust SDK do")
given.add_argument("--silent", action="store_true")
given.add_argument("--noise", type=int, default=0)
given.add_argument("--stubborn", action="store_true", help="ignores SIGTERM and the end of its input")
given.add_argument("--child", action="store_true", help="starts a program that ignores both too")
given.add_argument("--slow", type=float, default=0.0)
given.add_argument("--pages", type=int, default=1)
given.add_argument("--say", default="")
given.add_argument("--port", type=int, default=0, help="on HTTP, with sessions in the older era")
given.add_argument("--fail", type=int, default=0, help="times that it ends at once, counted in the journal")
flags = given.parse_args()

VERSION = {"legacy": "2025-11-25", "modern": "2026-07-28"}[flags.era]
CAPABILITIES = {"tools": {"listChanged": True}}
IDENTITY = {"name": "small", "version": "1"}
TOOLS = ["echo", "die", "die_once", "hang", "slow", "big", "environment", "grow", "noise"]
frozen = False
said_on_http = []


class Handler(BaseHTTPRequestHandler):
    """One request, its answers as one JSON."""

    session = f"session-{os.getpid()}"

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        begins = message["method"] in {"initialize", "server/discover"}
        if flags.era == "legacy" and not begins and self.headers["mcp-session-id"] != self.session:
            error = {"code": -32600, "message": "Session not found"}
            self.reply(404, json.dumps({"jsonrpc": "2.0", "id": None, "error": error}))
            return
        take(message)
        answers = [line for line in said_on_http if "id" in json.loads(line)]
        said_on_http.clear()
        self.reply(200 if answers else 202, "".join(answers))

    def do_GET(self):
        self.reply(405, "")

    def do_DELETE(self):
        self.reply(200, "")

    def reply(self, status, body):
        self.send_response(status)
        if flags.era == "legacy" and status == 200:
            self.send_header("mcp-session-id", self.session)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


def note(text):
    with Path(flags.journal).open("a", encoding="utf-8") as journal:
        journal.write(f"{text}\n")


def send(message):
    line = json.dumps({"jsonrpc": "2.0", **message}) + "\n"
    if flags.port:
        said_on_http.append(line)
    else:
        sys.stdout.write(line)
        sys.stdout.flush()


def answer(identifier, result):
    more = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if flags.era == "modern" else {}
    send({"id": identifier, "result": {**result, **more}})


def text_result(text):
    return {"content": [{"type": "text", "text": text}], "isError": False}


def call(identifier, name, arguments, token):
    match name:
        case "die":
            print("I die", file=sys.stderr, flush=True)  # noqa: T201
            os._exit(3)
        case "die_once":
            if Path(flags.journal).read_text(encoding="utf-8").count("call die_once") == 1:
                os._exit(3)
            answer(identifier, text_result("alive"))
        case "hang":
            pass
        case "freeze":
            global frozen  # noqa: PLW0603
            frozen = True
        case "slow":
            for step in range(arguments["steps"]):
                time.sleep(arguments["seconds"])
                progress = {"progressToken": token, "progress": step + 1, "total": arguments["steps"], "message": "on"}
                send({"method": "notifications/progress", "params": progress})
            answer(identifier, text_result("done"))
        case "big":
            answer(identifier, text_result("x" * arguments["size"]))
        case "environment":
            answer(identifier, text_result(json.dumps(dict(os.environ))))
        case "grow":
            for _ in range(3):
                TOOLS.append(f"new{len(TOOLS)}")
                send({"method": "notifications/tools/list_changed"})
            answer(identifier, text_result("grown"))
        case "noise":
            for _ in range(arguments["lines"]):
                sys.stdout.write("not a message\n")
            answer(identifier, text_result("noisy"))
        case "echo":
            answer(identifier, text_result(arguments.get("text", "")))
        case _:
            send({"id": identifier, "error": {"code": -32602, "message": f"Unknown tool: {name}"}})


def take(message):
    method, identifier, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "tools/call":
        note(f"call {params['name']}")
        call(identifier, params["name"], params.get("arguments") or {}, params.get("_meta", {}).get("progressToken"))
        return
    note(method)
    if identifier is None:
        return
    match method:
        case "initialize" if flags.era == "legacy":
            answer(identifier, {"protocolVersion": VERSION, "capabilities": CAPABILITIES, "serverInfo": IDENTITY})
        case "server/discover" if flags.era == "modern":
            answer(identifier, {"supportedVersions": [VERSION], "capabilities": CAPABILITIES})
        case "server/discover" if flags.ends_at_discover:
            print("expect initialized request", file=sys.stderr, flush=True)  # noqa: T201
            os._exit(1)
        case "server/discover" if flags.deaf_to_discover:
            pass
        case "ping":
            answer(identifier, {})
        case "tools/list":
            page = int(params.get("cursor") or 0)
            names = TOOLS if flags.pages == 1 else [f"tool{page}"]
            listed = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
            answer(identifier, listed | ({"nextCursor": str(page + 1)} if page + 1 < flags.pages else {}))
        case _:
            send({"id": identifier, "error": {"code": -32601, "message": "Method not found"}})


note(f"start {os.getpid()}")
if flags.fail and Path(flags.journal).read_text(encoding="utf-8").count("start") <= flags.fail:
    sys.exit("not yet")
if flags.say:
    print(flags.say, file=sys.stderr, flush=True)  # noqa: T201
if flags.stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if flags.child:
    ignores = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    note(f"child {subprocess.Popen([sys.executable, '-c', ignores], stdin=subprocess.DEVNULL).pid}")
time.sleep(flags.slow)
for _ in range(flags.noise):
    sys.stdout.write("DEBUG: starting up\n")
if flags.port:
    HTTPServer(("127.0.0.1", flags.port), Handler).serve_forever()
for line in sys.stdin:
    if not flags.silent and not frozen:
        take(json.loads(line))
while flags.stubborn:
    time.sleep(600)
note("end")
