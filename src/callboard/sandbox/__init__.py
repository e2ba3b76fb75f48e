"""Commands that may do little."""

from callboard.errors import SandboxUnavailable
from callboard.sandbox.detect import find_sandbox
from callboard.sandbox.policy import CommandLimits, Confinement, Outcome, Sandbox

__all__ = ["CommandLimits", "Confinement", "Outcome", "Sandbox", "SandboxUnavailable", "find_sandbox"]
