"""How calls are asked for, and where they are found."""

from callboard.modes.choice import Choice, choice, reminded
from callboard.modes.lowering import lower, watched
from callboard.modes.mode import MODES, Mode, Plan, plan, plan_of
from callboard.modes.watcher import Watcher

__all__ = [
    "MODES",
    "Choice",
    "Mode",
    "Plan",
    "Watcher",
    "choice",
    "lower",
    "plan",
    "plan_of",
    "reminded",
    "watched",
]
