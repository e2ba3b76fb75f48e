"""Relay a port of a sandbox's loopback to the proxy's socket. A script of its own: `relay.py SOCKET COMMAND ...`.

It listens, starts a detached process that relays, and becomes the command, which finds the port in its environment.
"""

from __future__ import annotations

import os
import socket
import sys

_BLOCK = 64 * 1024


def _relay(listener: socket.socket, proxy: str) -> None:
    import asyncio  # noqa: PLC0415  # slow, and nobody waits for it here

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while block := await reader.read(_BLOCK):
                writer.write(block)
                await writer.drain()
            writer.write_eof()
        except OSError:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_unix_connection(proxy)
            await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))
            there[1].close()
        except OSError:
            pass
        finally:
            writer.close()

    async def listen() -> None:
        server = await asyncio.start_server(serve, sock=listener)
        await server.serve_forever()

    asyncio.run(listen())


def _detach(listener: socket.socket, proxy: str) -> None:
    """Fork twice, so that a command that waits for all of its children does not wait for the relay."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    if os.fork():
        os._exit(0)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    try:
        _relay(listener, proxy)
    finally:
        os._exit(1)


def _main(proxy: str, command: list[str]) -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    _detach(listener, proxy)
    environment = dict(os.environ, NO_PROXY="localhost,127.0.0.1,::1", no_proxy="localhost,127.0.0.1,::1")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        environment[name] = environment[name.lower()] = url
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606  # which is the purpose
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])
