"""The network access of a sandbox: an HTTP proxy on a Unix socket, limited to a list of hosts.

It takes CONNECT (RFC 9110, section 9.3.6) and the absolute form (RFC 9112, section 3.2.2), one request per connection.
Laws: a name is resolved once, and the connection uses the very address that was checked. An address outside of the
public internet is allowed only if the list has that address itself.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import shutil
import socket
import tempfile
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

from callboard.errors import CallerError

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

PORTS = (80, 443)
"""Ports of an entry without ports."""

_NAME = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_HOST_AND_PORT = re.compile(r"(?P<host>\[[^\]]*\]|[^:]*)(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
# RFC 6052: an IPv4 address follows.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class HostEntry(NamedTuple):
    """`*.` before a name stands for every subdomain, not for the name itself."""

    host: str | Address
    ports: tuple[int, ...]


class HostList:
    """The list, such as `("example.org", "*.example.org", "example.org:8443", "127.0.0.1:8080")`. Raises CallerError."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._entries = [_parse_entry(entry) for entry in entries]

    def allow(self, host: str, port: int) -> bool:
        """Return whether a host, by name or address, may be requested."""
        name = normalize_host(host)
        entries = [entry.host for entry in self._entries if port in entry.ports]
        subdomains = [each[1:] for each in entries if isinstance(each, str) and each.startswith("*.")]
        return name in entries or (isinstance(name, str) and name.endswith(tuple(subdomains)))

    def allow_address(self, address: str, port: int) -> bool:
        """Return whether an address that an allowed name resolved to may be connected to."""
        parsed = _unwrap_ipv4(ipaddress.ip_address(address.partition("%")[0]))
        return (parsed.is_global and not parsed.is_multicast) or any(
            parsed == entry.host and port in entry.ports for entry in self._entries
        )


def split_host_port(text: str, default: int) -> tuple[str, int]:
    """Split `host`, `host:port` or `[address]:port`. Raises ValueError."""
    match = _HOST_AND_PORT.fullmatch(text)
    if not match or not match["host"] or (match["port"] and not 0 < int(match["port"]) < 65536):
        raise ValueError(text)
    return match["host"].strip("[]"), int(match["port"] or default)


def normalize_host(host: str) -> str | Address:
    """Return the canonical spelling of a host, in which hosts are compared. Raises ValueError."""
    try:
        return _unwrap_ipv4(ipaddress.ip_address(host))
    except ValueError:
        name = host.lower().removesuffix(".")
        # Some resolvers take a name that ends with a number for an address.
        if len(name) > 253 or not _NAME.fullmatch(name) or name.rpartition(".")[2].isdigit():
            raise ValueError(host) from None
        return name


def _parse_entry(text: str) -> HostEntry:
    try:
        host, port = split_host_port(text, 0)
        wild = host.startswith("*.")
        name = normalize_host(host.removeprefix("*."))
    except ValueError:
        raise CallerError(
            "is no host", path=f"hosts: {text!r}", hint="write it as example.org, *.example.org or example.org:8443"
        ) from None
    return HostEntry(f"*.{name}" if wild else name, (port,) if port else PORTS)


def _unwrap_ipv4(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address embeds, else the address."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address


MAX_HEAD = 32 * 1024
"""Bytes of a request's line and headers."""
MAX_CONNECTIONS = 64
"""At once; further ones are refused."""
_CONNECT_SECONDS = 30
"""Seconds for a request's head, and for a connection to its host."""
_BLOCK = 64 * 1024

# Headers of the connection to the proxy, which are not forwarded (RFC 9110, section 7.6.1).
_HOP_HEADERS = (b"connection", b"proxy-connection", b"proxy-authorization", b"keep-alive", b"host")


class ProxyError(Exception):
    """A request that the proxy answers itself, with an error."""

    def __init__(self, status: int, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        body = f"callboard's sandbox: {reason}{hint and f'; {hint}'}\n".encode()
        line = b"HTTP/1.1 %d %s\r\n" % (status, reason.encode("ascii", "replace"))
        headers = b"Content-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
        self.answer = line + headers + body


class ProxyRequest(NamedTuple):
    """The target of a request, and the head that is sent to it; empty for CONNECT."""

    host: str
    port: int
    head: bytes


@asynccontextmanager
async def open_proxy(hosts: Sequence[str]) -> AsyncIterator[Path]:
    """Run a proxy; yields the path of its socket. Raises CallerError for an invalid list."""
    proxy = _Proxy(HostList(hosts))
    # Private, and short: the path of a socket has 107 bytes.
    directory = Path(tempfile.mkdtemp(prefix="callboard-", dir="/tmp"))  # mkdtemp's are nobody else's
    try:
        place = directory / "proxy"
        server = await asyncio.start_unix_server(proxy.serve, place, limit=MAX_HEAD)
        # The directory is closed to others, and the command may be another user.
        place.chmod(0o666)
        try:
            yield place
        finally:
            server.close()
            await proxy.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def parse_request(head: bytes) -> ProxyRequest:
    """Parse a request's head. Raises ProxyError."""
    try:
        return _parse_lines(*head.removesuffix(b"\r\n\r\n").split(b"\r\n"))
    except ValueError:
        raise ProxyError(400, "this is no request to a proxy") from None


def _parse_lines(line: bytes, *headers: bytes) -> ProxyRequest:
    method, target, version = line.split(b" ")
    if not version.startswith(b"HTTP/1.") or not method.isalpha():
        raise ValueError(line)
    if method == b"CONNECT":
        return ProxyRequest(*split_host_port(target.decode("ascii"), 443), b"")
    scheme, _, rest = target.partition(b"://")
    if scheme.lower() != b"http":
        raise ValueError(line)
    authority, slash, path = rest.partition(b"/")
    host, port = split_host_port(authority.decode("ascii"), 80)
    passed = [header for header in headers if header.partition(b":")[0].strip().lower() not in _HOP_HEADERS]
    lines = [b" ".join((method, (slash or b"/") + path, version)), b"Host: " + authority, *passed, b"Connection: close"]
    return ProxyRequest(host, port, b"\r\n".join(lines) + b"\r\n\r\n")


class _Proxy:
    def __init__(self, hosts: HostList) -> None:
        self._hosts = hosts
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task  # noqa: S101  # asyncio starts one
        self._tasks.add(task)
        try:
            await self._exchange(reader, writer)
        except ProxyError as refused:
            with suppress(OSError):
                writer.write(refused.answer)
                await writer.drain()
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def close(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _exchange(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self._closed or len(self._tasks) > MAX_CONNECTIONS:
            raise ProxyError(503, "too many connections at once")
        async with asyncio.timeout(_CONNECT_SECONDS):
            request = parse_request(await reader.readuntil(b"\r\n\r\n"))
            answers, questions = await self._connect(request)
        try:
            if request.head:
                questions.write(request.head)
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(_copy(reader, questions), _copy(answers, writer))
        finally:
            questions.close()

    async def _connect(self, request: ProxyRequest) -> tuple[StreamReader, StreamWriter]:
        place = request.host if request.port in (80, 443) else f"{request.host}:{request.port}"
        try:
            allowed = self._hosts.allow(request.host, request.port)
        except ValueError:
            raise ProxyError(400, "this is no name of a host") from None
        if not allowed:
            raise ProxyError(
                403, f"{place} is not among the hosts that are allowed", f'add "{place}" to the list `hosts`'
            )
        loop = asyncio.get_running_loop()
        try:
            infos = await loop.getaddrinfo(request.host, request.port, type=socket.SOCK_STREAM)
        except OSError:
            raise ProxyError(502, f"{place} is not known") from None
        addresses = [str(each[4][0]) for each in infos]
        allowed_addresses = [address for address in addresses if self._hosts.allow_address(address, request.port)]
        if not allowed_addresses:
            raise ProxyError(
                403,
                f"{place} has an address that is not public",
                f'add that address too, such as "{addresses[0]}:{request.port}", to the list `hosts`',
            )
        for address in allowed_addresses:
            with suppress(OSError):
                return await asyncio.open_connection(address, request.port, limit=_BLOCK)
        raise ProxyError(502, f"{place} does not answer")


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(OSError):
        while block := await reader.read(_BLOCK):
            writer.write(block)
            await writer.drain()
    with suppress(OSError, RuntimeError):
        writer.write_eof()
