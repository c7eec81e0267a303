"""How far a run has come, from 0 to 1: by steps for a number of epochs, by time for a number of minutes.

With epochs, progress is step / total. With minutes it is the share of the time for training that has gone by, so that
the schedule ends when the time does, however the pace changes on the way. Both are a few numbers in the checkpoint.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Clock:
    total: int  # steps: the budget, or with minutes what the pace of late would give
    step: int = 0
    progress: float = 0.0
    seconds: float = 0.0  # spent in earlier parts of a resumed run and in this one
    minutes: float = 0.0  # the budget; 0: the number of steps is the budget
    started: float = 0.0  # seconds that were spent before the first step
    reserve: float = 0.0  # seconds that the end of the run will take
    step_seconds: float = 0.0  # of late
    validation_seconds: float = 0.0  # of the last validation
    final_seconds: float = 0.0  # that judging the chosen weights will take

    @property
    def done(self) -> bool:
        if self.minutes and self.step:
            return self.seconds + self.step_seconds > 60 * self.minutes - self.reserve
        return self.step >= self.total

    def tick(self) -> None:
        self.step += 1
        self.progress = self.step / self.total if not self.minutes else max(self.progress, self._share(self.seconds))

    def progress_at(self, step: int) -> float:
        """Where a coming step will stand, as things are now."""
        if not self.minutes:
            return min(1.0, step / max(self.total, 1))
        return min(1.0, self.progress + self._share(self.started + self.step_seconds * (step - self.step)))

    def replan(self, step_seconds: float, reserve: float) -> None:
        """Take note of the pace, and of what has to be kept for the end; forecast the number of steps."""
        self.step_seconds, self.reserve = step_seconds, reserve
        if self.step == 0:
            self.started = self.seconds
        left = 60 * self.minutes - self.seconds - reserve
        self.total = self.step + max(math.floor(left / max(step_seconds, 1e-9)), 1 if self.step == 0 else 0)

    def _share(self, seconds: float) -> float:
        return min(1.0, max(0.0, seconds - self.started) / max(60 * self.minutes - self.reserve - self.started, 1e-9))

    def numbers(self) -> dict[str, Any]:
        return asdict(self)
