"""Measure what each part of the CIFAR-10 recipe contributes: the recipe, and the recipe without one part at a time.

    python benchmarks/ablation.py --epochs 3 --seeds 0 1 --data-dir DATA      # finished runs are skipped
    python benchmarks/ablation.py --table

Accuracies are of validation images held out of the training split, so that the test split is not used for choices.
Each run adds one line to results/ablation.jsonl.
"""

import argparse
import datetime
import json
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path

from vitkit.training import get_recipe
from vitkit.training.run_dir import describe_environment
from vitkit.training.train import train

RESULTS = Path(__file__).parent / "results" / "ablation.jsonl"
RECIPE = "cifar10_classic"
ROWS: dict[str, list[str]] = {
    "the recipe": [],
    "AdamW at 2e-3 instead of Muon": ["optimizer.name=adamw", "optimizer.lr=2e-3"],
    "batch 256 instead of 64": ["batch=256"],
    "learned positions instead of rotary": ["config.position=learned"],
    "no positions at all": ["config.position=none"],
    "class token instead of mean pooling": ["config.class_token=true", "config.pooling=cls"],
    "no average of the weights": ["optimizer.ema=0"],
    "no label smoothing": ["loss.label_smoothing=0"],
    "no flips and crops": ["augment.crop=none", "augment.flip=false"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--data-dir", default="")
    parser.add_argument("--table", action="store_true", help="only print the results kept so far")
    asked = parser.parse_args()
    if not asked.table:
        for seed in asked.seeds:  # seed by seed, so that every row gets its first result early
            for name in ROWS:
                if (name, asked.epochs, seed) not in done():
                    keep(run(name, asked.epochs, seed, asked.data_dir))
    print(table())


def run(name: str, epochs: float, seed: int, data_dir: str) -> dict[str, object]:
    changes = [f"seed={seed}", f"data_dir={data_dir}", f"budget.epochs={epochs}", "val_fraction=0.1"]
    changes += ["machine.threads=1", "machine.precision=fp32", "machine.compile=off", *ROWS[name]]
    with tempfile.TemporaryDirectory() as folder:
        result = train(get_recipe(RECIPE).override(changes), folder + "/run")
    machine = describe_environment()
    return {
        "without": name, "changes": ROWS[name], "epochs": epochs, "seed": seed,
        "val": result.val["top1"], "n": result.val["n"], "minutes": round(result.seconds / 60, 1),
        "date": datetime.date.today().isoformat(),
        **{key: machine[key] for key in ("vitkit", "packages", "processor", "cores", "gpu")},
    }  # fmt: skip


def rows() -> list[dict]:
    return [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()] if RESULTS.exists() else []


def done() -> set[tuple[str, float, int]]:
    return {(row["without"], row["epochs"], row["seed"]) for row in rows()}


def keep(row: dict[str, object]) -> None:
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def table() -> str:
    found: dict[tuple[float, str], dict[int, float]] = defaultdict(dict)
    for row in rows():
        found[row["epochs"], row["without"]][row["seed"]] = row["val"]
    lines = ["| epochs | recipe | validation, seed by seed | mean | to the complete recipe |", "|---|---|---|---|---|"]
    for (epochs, name), values in found.items():
        reference = found.get((epochs, "the recipe"), {})  # compared within a seed: both share its draws
        pairs = [value - reference[seed] for seed, value in values.items() if seed in reference]
        change = f"{100 * statistics.mean(pairs):+.1f} points" if pairs else ""
        each = ", ".join(f"{value:.1%}" for value in values.values())
        lines.append(f"| {epochs:g} | {name} | {each} | {statistics.mean(values.values()):.1%} | {change} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
