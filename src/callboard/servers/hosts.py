"""Names of hosts: which of them only this machine reaches."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]*)?")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_name(value: str) -> str:
    """The name in a Host header, without its port and in lower case; "" for a value that is not a name and a port."""
    match = _HOST.fullmatch(value)
    return match[1].lower() if match is not None else ""
