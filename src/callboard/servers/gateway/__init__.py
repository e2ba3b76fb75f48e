"""The gateway: clients speak any wire to it, and it speaks any wire to its backends."""

from __future__ import annotations

from callboard.servers.gateway.settings import BackendSettings, GatewayLimits, GatewaySettings

__all__ = ["BackendSettings", "GatewayLimits", "GatewaySettings"]
