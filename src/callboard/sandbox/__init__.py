"""Commands that may do little."""

from callboard.sandbox.confinement import CommandLimits, Confinement, Outcome, Sandbox, SandboxUnavailable
from callboard.sandbox.finding import find_sandbox

__all__ = ["CommandLimits", "Confinement", "Outcome", "Sandbox", "SandboxUnavailable", "find_sandbox"]
