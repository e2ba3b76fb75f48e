"""Commands that may do little."""

from callboard.errors import SandboxUnavailable
from callboard.sandbox.confinement import CommandLimits, Confinement, Outcome, Sandbox
from callboard.sandbox.finding import find_sandbox

__all__ = ["CommandLimits", "Confinement", "Outcome", "Sandbox", "SandboxUnavailable", "find_sandbox"]
