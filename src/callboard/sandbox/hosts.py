"""The list of hosts that a command may reach.

Law: an address that is not of the public internet is allowed only if the list names that address itself.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from callboard.errors import CallerError

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

PORTS = (80, 443)
"""Those of an entry without ports."""

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
        """Whether a host, by name or address, may be requested."""
        name = normalize_host(host)
        return any(port in entry.ports and _matches(name, entry.host) for entry in self._entries)

    def allow_address(self, address: str, port: int) -> bool:
        """Whether an address that an allowed name resolved to may be connected to."""
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
    """The canonical spelling of a host, in which hosts are compared. Raises ValueError."""
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


def _matches(name: str | Address, entry: str | Address) -> bool:
    if isinstance(name, str) and isinstance(entry, str) and entry.startswith("*."):
        return name.endswith(entry[1:])
    return name == entry


def _unwrap_ipv4(address: Address) -> Address:
    """The IPv4 address that an IPv6 address embeds, else the address."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address
