"""Host names, and whether only this machine can reach them."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]*)?")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_name(value: str) -> str:
    """Return the name in a Host header, in lower case and without port; "" if the value is not a name and a port."""
    match = _HOST.fullmatch(value)
    return match[1].lower() if match is not None else ""
