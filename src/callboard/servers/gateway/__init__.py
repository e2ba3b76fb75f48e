"""The gateway: any client's wire in front, any backend's behind."""

from __future__ import annotations

from callboard.servers.gateway.settings import BackendSettings, GatewayLimits, GatewaySettings

__all__ = ["BackendSettings", "GatewayLimits", "GatewaySettings"]
