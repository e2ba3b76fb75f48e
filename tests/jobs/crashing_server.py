"""A PostgreSQL of a test's own, which may be stopped as if it had crashed."""

import shutil
from contextlib import contextmanager

import psycopg
from sqlalchemy import make_url
from tests.postgresql import PostgresServer, require_control


class CrashingServer:
    """Its `url`, and ways to stop and start it."""

    def __init__(self, server):
        self._server = server
        self.url = server.start()
        self._options = f"-h 127.0.0.1 -p {make_url(self.url).port} -k '' -F"

    def crash(self):
        self._server.run("stop", "-m", "immediate")

    def start(self):
        self._server.run("start", "-w", "-l", str(self._server.room / "log"), "-o", self._options)

    def runs(self):
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def crashing_server():
    """A server that ends with the test, whether it stands or not."""
    control = require_control()
    server = PostgresServer.make(control)
    try:
        crashing = CrashingServer(server)
        yield crashing
        if crashing.runs():
            crashing.crash()
    finally:
        shutil.rmtree(server.room, ignore_errors=True)
