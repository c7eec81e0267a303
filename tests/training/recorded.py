"""`vitkit`, with a note of which samples every step was given: python -m tests.training.recorded FOLDER train digits …

Each process appends to a file of its own, a line per step; what a resumed run does again is noted again.
"""

import json
import os
import sys
from pathlib import Path

from vitkit.cli.main import main
from vitkit.data.loader import Batch
from vitkit.training.trainer import Trainer


def watch(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{os.environ.get('RANK', '0')}-of-{os.environ.get('WORLD_SIZE', '1')}.jsonl"
    update = Trainer.update

    def noted(self: Trainer, batch: Batch) -> tuple[float, float, float]:
        step, found = self.state.clock.step, update(self, batch)
        with path.open("a") as file:
            file.write(json.dumps({"step": step, "samples": batch.keys.index.tolist(), "loss": found[0]}) + "\n")
        return found

    Trainer.update = noted


def samples_by_step(folder: Path) -> dict[int, list[int]]:
    """The samples of each step in order, put together from the processes that did it.

    A step is whole when all processes of one world have noted it. What was done again must have been the same.
    """
    worlds: dict[tuple[int, int], dict[int, list[int]]] = {}
    for path in folder.glob("*.jsonl"):
        rank, size = map(int, path.stem.split("-of-"))
        for line in path.read_text().splitlines():
            if line.endswith("}"):  # else its writer was killed
                note = json.loads(line)
                before = worlds.setdefault((size, note["step"]), {}).setdefault(rank, note["samples"])
                assert before == note["samples"], f"step {note['step']} had other samples when it was done again"
    found: dict[int, list[int]] = {}
    for (size, step), ranks in worlds.items():
        if len(ranks) == size:
            samples = [sample for rank in range(size) for sample in ranks[rank]]
            assert found.setdefault(step, samples) == samples, f"step {step} had other samples in another world"
    return found


def losses(folder: Path) -> list[float]:
    """Of each step, as the main process noted them."""
    (path,) = folder.glob("0-of-*.jsonl")
    return [json.loads(line)["loss"] for line in path.read_text().splitlines()]


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
