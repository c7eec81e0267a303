"""How far a run has come, from 0 to 1: by steps for a number of epochs, by time for a number of minutes.

With epochs the end is known and progress is step / total. With minutes every step moves progress by what the pace of
late allows, and the pace is looked at again and again, so that the schedule ends when the time does. Both are a few
numbers in the checkpoint.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Clock:
    total: int  # steps, as planned now
    step: int = 0
    progress: float = 0.0
    seconds: float = 0.0  # spent in earlier parts of a resumed run and in this one
    minutes: float = 0.0  # the budget; 0: the number of steps is the budget

    @property
    def done(self) -> bool:
        return self.step >= self.total

    def tick(self) -> None:
        self.step += 1
        if self.minutes:
            self.progress += (1 - self.progress) / max(self.total - self.step + 1, 1)
        else:
            self.progress = self.step / self.total

    def progress_at(self, step: int) -> float:
        """Where a coming step will stand, as planned now."""
        if not self.minutes:
            return min(1.0, step / self.total)
        return min(1.0, self.progress + (1 - self.progress) * (step - self.step) / max(self.total - self.step, 1))

    def replan(self, step_seconds: float, reserve: float) -> None:
        """Fit the number of steps to the time that is left, less what the end of the run will take."""
        if self.minutes and step_seconds > 0:
            left = 60 * self.minutes - self.seconds - reserve
            self.total = self.step + max(math.floor(left / step_seconds), 1 if self.step == 0 else 0)

    def numbers(self) -> dict[str, Any]:
        return asdict(self)
