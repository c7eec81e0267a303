"""The progress of a run, from 0 to 1: by steps for a budget of epochs, by time for a budget of minutes.

With epochs, progress is step / total. With minutes, it is the elapsed fraction of the training time, so the schedule
ends on time even if the speed changes. The state is a few numbers in the checkpoint.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Clock:
    total: int  # steps: the budget, or with minutes the number that the current speed predicts
    step: int = 0
    progress: float = 0.0
    seconds: float = 0.0  # elapsed, including earlier parts of a resumed run
    minutes: float = 0.0  # the budget; 0: `total` steps are the budget
    started: float = 0.0  # elapsed seconds at the first step
    reserve: float = 0.0  # seconds kept for the end of the run
    step_seconds: float = 0.0  # recent
    validation_seconds: float = 0.0  # of the last validation
    final_seconds: float = 0.0  # expected for the final evaluation

    @property
    def done(self) -> bool:
        if self.minutes and self.step:
            return self.seconds + self.step_seconds > 60 * self.minutes - self.reserve
        return self.step >= self.total

    def tick(self) -> None:
        self.step += 1
        self.progress = self.step / self.total if not self.minutes else max(self.progress, self._share(self.seconds))

    def progress_at(self, step: int) -> float:
        """Return the progress that a future step will have at the current speed."""
        if not self.minutes:
            return min(1.0, step / max(self.total, 1))
        return min(1.0, self.progress + self._share(self.started + self.step_seconds * (step - self.step)))

    def replan(self, step_seconds: float, reserve: float) -> None:
        """Store the step time and the seconds to reserve for evaluations at the end. Predict the number of steps."""
        self.step_seconds, self.reserve = step_seconds, reserve
        if self.step == 0:
            self.started = self.seconds
        left = 60 * self.minutes - self.seconds - reserve
        self.total = self.step + max(math.floor(left / max(step_seconds, 1e-9)), 1 if self.step == 0 else 0)

    def _share(self, seconds: float) -> float:
        return min(1.0, max(0.0, seconds - self.started) / max(60 * self.minutes - self.reserve - self.started, 1e-9))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
