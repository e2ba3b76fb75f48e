"""The gateway: any client's wire in front, any backend's behind."""

from __future__ import annotations

from callboard.servers.gateway.settings import BackendSettings, GatewaySettings, Limits

__all__ = ["BackendSettings", "GatewaySettings", "Limits"]
