"""How soon is the board there, how soon does it show what happens, and how much does a browser load?

usage: python -m bench.board [--json]     (make bench-board brings the browser)

- What the browser loads of ours besides the page: KB of the styles, the script and the icon, compressed by gzip.
- The list of jobs, with 10,000 of them in a file of SQLite: milliseconds until the server has answered, and until a
  browser that has the styles has painted first. The median and the worst of 30 loads.
- A job that another process runs: milliseconds from before its entry is written until the frame in which a browser shows
  it. The median and the worst of 50 entries.

The browser is Debian's chromium, driven by Playwright from `make test-board`'s environment; without it the first two
figures are printed alone. Everything runs on this machine, over loopback.
"""

import asyncio
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from anyio.from_thread import start_blocking_portal
from msgspec.structs import replace

from callboard.core import AssistantCanister, UserCanister
from callboard.jobs import queries
from callboard.jobs.database import Database
from callboard.jobs.job import JobTemplate, new_identifier
from callboard.jobs.store import DurableStore
from callboard.servers.board.login import Login
from callboard.servers.board.templating import ASSETS

JOBS = 10_000
LOADS = 30
ENTRIES = 50
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
"""Of the browser, here and in tests/board."""
STATES = ("completed", "completed", "completed", "failed", "cancelled", "running", "pending")
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
WATCH = """() => { window.frames_seen = [];
new MutationObserver(() => requestAnimationFrame(() => window.frames_seen.push(Date.now())))
.observe(document.getElementById("log"), { childList: true }) }"""


def main() -> None:
    figures: dict[str, object] = {"assets_kb": round(weigh_assets(), 1)}
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"XDG_STATE_HOME": home, "XDG_DATA_HOME": home}
        os.environ.pop("CALLBOARD_DATABASE_URL", None)
        with Database.open() as database, serve_board() as url:
            store = DurableStore(database)
            add_jobs(database)
            login = Login()
            cookie = f"{login.cookie}={login.begin_session()}"
            figures["answer_ms"] = describe([load(f"{url}jobs", cookie) for _ in range(LOADS)])
            figures |= look(url, cookie, store)
    if "--json" in sys.argv:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:20} {value}")


def weigh_assets() -> float:
    """KB of all assets, each compressed by itself."""
    return sum(len(gzip.compress(asset.content, mtime=0)) for asset in ASSETS.values()) / 1024


def add_jobs(database: Database) -> None:
    """As many jobs as the list is measured with, in one transaction."""
    begin = datetime.now(UTC) - timedelta(days=30)

    def add(connection: object) -> None:
        for number in range(JOBS):
            made = begin + timedelta(minutes=4 * number)
            template = JobTemplate(kind="agent", description=f"Job {number} of the bench", model="openai:gpt-4o")
            job = template.make_job(new_identifier(made), made)
            changes = {"state": STATES[number % len(STATES)], "usage": {"input": 1000, "output": 100}, "rounds": 3}
            queries.add_job(connection, replace(job, **changes))

    database.run_blocking(add)


@contextmanager
def serve_board():
    """The address of a board in a process of its own."""
    command = [sys.executable, "-m", "callboard", "board", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()


def load(url: str, cookie: str) -> float:
    """Milliseconds until a page was read."""
    request = urllib.request.Request(url, headers={"cookie": cookie})
    began = time.perf_counter()
    with urllib.request.urlopen(request) as answer:
        answer.read()
    return (time.perf_counter() - began) * 1000


def find_chromium() -> str | None:
    """Debian's chromium, or the one that CALLBOARD_CHROMIUM names; None where there is none."""
    search = f"{os.environ.get('PATH', '')}:/usr/bin"
    return os.environ.get("CALLBOARD_CHROMIUM") or shutil.which("chromium", path=search)


def look(url: str, cookie: str, store: DurableStore) -> dict[str, object]:
    """What a browser measures; nothing where there is none."""
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415  # where it is installed
    except ImportError:
        return {}
    chromium = find_chromium()
    if chromium is None:
        return {}
    name, _, value = cookie.partition("=")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        context = browser.new_context()
        context.add_cookies([{"name": name, "value": value, "url": url}])
        page = context.new_page()
        paints = [paint(page, f"{url}jobs") for _ in range(LOADS + 1)]
        delays = follow(page, url, store)
        browser.close()
    return {"first_paint_ms": describe(paints[1:]), "event_to_screen_ms": describe(delays)}


def wait_for(page, condition: str) -> None:
    """Playwright's own way evaluates a text in the page, which the board's policy forbids."""
    while not page.evaluate(condition):
        time.sleep(0.01)


def paint(page, url: str) -> float:
    """Milliseconds from the navigation to the first content."""
    page.goto(url)
    wait_for(page, "performance.getEntriesByName('first-contentful-paint').length > 0")
    return page.evaluate(PAINT)


def follow(page, url: str, store: DurableStore) -> list[float]:
    """Milliseconds from before each entry is written to the frame that shows it."""

    async def begin():
        job = await store.create("agent", description="Count", items=[UserCanister("Count")])
        return await store.claim(job.id, 1, "the bench")

    async def say(claim, number: int) -> float:
        await asyncio.sleep(0.2 + number % 10 / 100)  # at any moment between two looks of the server
        began = time.time() * 1000
        await claim.append([AssistantCanister(f"number {number}")], rounds=number + 1)
        return began

    delays = []
    with start_blocking_portal() as portal:
        claim = portal.call(begin)
        page.goto(f"{url}jobs/{claim.job.id}")
        wait_for(page, "document.getElementById('status').textContent === 'Live'")
        page.evaluate(WATCH)
        for number in range(ENTRIES):
            began = portal.call(say, claim, number)
            wait_for(page, f"window.frames_seen.length > {number}")
            delays.append(page.evaluate(f"window.frames_seen[{number}]") - began)
    return delays


def describe(milliseconds: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(milliseconds), 1), "worst": round(max(milliseconds), 1)}


if __name__ == "__main__":
    main()
