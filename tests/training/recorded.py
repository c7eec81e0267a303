"""Run `vitkit` and record samples and dropout masks of every step.

    python -m tests.training.recorded FOLDER train digits …

Each process appends one line per step to its own file. Steps that a resumed run repeats are recorded again.
"""

import json
import os
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from vitkit.cli.main import main
from vitkit.data.loader import Batch
from vitkit.model import dropout
from vitkit.training.trainer import Trainer


def record(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{os.environ.get('RANK', '0')}-of-{os.environ.get('WORLD_SIZE', '1')}.jsonl"
    update, draw, drawn = Trainer.update, dropout.keep_mask, set()

    def noted(seeds: Tensor, shape: Sequence[int], rate: float) -> Tensor:
        masks = draw(seeds, shape, rate)
        pairs = zip(seeds.tolist(), masks.numpy(), strict=True)
        drawn.update(zlib.crc32(mask.tobytes(), seed % 2**32) for seed, mask in pairs)
        return masks

    def recorded(self: Trainer, batch: Batch) -> dict[str, float]:
        drawn.clear()
        step, found = self.state.clock.step, update(self, batch)
        note = {"step": step, "samples": batch.keys.index.tolist(), "loss": found["loss"], "masks": sorted(drawn)}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(note) + "\n")
        return found

    Trainer.update, dropout.keep_mask = recorded, noted


def samples_by_step(folder: Path) -> dict[int, list[int]]:
    """Return the samples of each step, joined over the processes.

    A step counts if all processes of one world recorded it. Repeated steps must have had the same samples.
    """
    worlds: dict[tuple[int, int], dict[int, list[int]]] = {}
    for path in folder.glob("*.jsonl"):
        rank, size = map(int, path.stem.split("-of-"))
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.endswith("}"):  # otherwise its writer was killed
                note = json.loads(line)
                before = worlds.setdefault((size, note["step"]), {}).setdefault(rank, note["samples"])
                assert before == note["samples"], f"step {note['step']} had other samples when it was repeated"
    found: dict[int, list[int]] = {}
    for (size, step), ranks in worlds.items():
        if len(ranks) == size:
            samples = [sample for rank in range(size) for sample in ranks[rank]]
            assert found.setdefault(step, samples) == samples, f"step {step} had other samples in another world"
    return found


def losses(folder: Path) -> list[float]:
    """Return the loss of each step, as recorded by the main process."""
    (path,) = folder.glob("0-of-*.jsonl")
    return [json.loads(line)["loss"] for line in path.read_text(encoding="utf-8").splitlines()]


def masks(folder: Path) -> dict[int, set[int]]:
    """Return hashes of all dropout masks of each step, joined over the processes."""
    found: dict[int, set[int]] = {}
    for path in folder.glob("*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            note = json.loads(line)
            found.setdefault(note["step"], set()).update(note["masks"])
    return found


if __name__ == "__main__":
    record(Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
