"""From given weights to a classifier, the cheap ways first."""

from vitkit.transfer.ladder import Ladder, Rung, climb
from vitkit.transfer.nearest import Nearest, nearest

__all__ = ["Ladder", "Nearest", "Rung", "climb", "nearest"]
