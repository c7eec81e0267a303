"""Train a CIFAR-10 recipe with several seeds, and add one line per run to the results.

    python benchmarks/cifar10.py cifar10_classic --epochs 25 --seeds 0 1 2 --data-dir DATA
    torchrun --standalone --nproc-per-node 2 benchmarks/cifar10.py cifar10_fast --minutes 12 --data-dir DATA
    python benchmarks/cifar10.py --table

Weights are chosen on validation images held out of the training split. The test split is used once, at the end of each
run. An interrupted run is resumed.
"""

import argparse
import datetime
import json
import os
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path

from vitkit.evaluation import mean_interval
from vitkit.training import get_recipe
from vitkit.training.run_dir import describe_environment
from vitkit.training.train import train

RESULTS = Path(__file__).parent / "results" / "cifar10.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="?")
    parser.add_argument("--epochs", type=float, default=0, help="instead of the recipe's own budget")
    parser.add_argument("--minutes", type=float, default=0, help="instead of the recipe's own budget")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--data-dir", default="")
    parser.add_argument("--set", nargs="*", default=[], metavar="key=value")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "vitkit-cifar10")
    parser.add_argument("--table", action="store_true", help="only print the results kept so far")
    arguments = parser.parse_args()
    if arguments.table or not arguments.recipe:
        print(table())
        return
    for seed in arguments.seeds:
        if row := run(arguments, seed):
            keep(row)
            print(table())


def run(arguments: argparse.Namespace, seed: int) -> dict[str, object] | None:
    """Return the result of the run, or None in processes other than the main one."""
    budget = f"{arguments.minutes:g} min" if arguments.minutes else f"{arguments.epochs:g} epochs"
    changes = [f"seed={seed}", f"data_dir={arguments.data_dir}", *arguments.set]
    changes += [
        f"budget.{name}={getattr(arguments, name)}" for name in ("epochs", "minutes") if getattr(arguments, name)
    ]
    folder = arguments.out / f"{arguments.recipe}-{budget.replace(' ', '-')}-{seed}"
    recipe = get_recipe(arguments.recipe).override(changes)
    result = train(recipe, folder, resume=(folder / "recipe.json").exists())
    if not result.is_main:
        return None
    machine = describe_environment()
    return {
        "recipe": arguments.recipe,
        "budget": budget,
        "seed": seed,
        "changes": arguments.set,
        "test": result.test["top1"] if result.test else None,
        "val": result.val["top1"],
        "epochs": round(result.epochs, 2),
        "minutes": round(result.seconds / 60, 1),
        "parameters": result.parameters,
        "date": datetime.date.today().isoformat(),
        **{key: machine[key] for key in ("vitkit", "packages", "processor", "cores", "gpu")},
        "threads": recipe.machine.threads or machine["threads"],
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
    }


def keep(row: dict[str, object]) -> None:
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def table() -> str:
    """Return the mean over seeds per recipe, budget, changes and model, with Student's t interval."""
    runs = defaultdict(list)
    for line in RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else ():
        row = json.loads(line)
        others = (change for change in row["changes"] if not change.startswith("machine."))
        runs[row["recipe"], row["budget"], " ".join(others), row["parameters"]].append(row)
    names = ["recipe", "budget", "changes", "parameters", "seeds", "test accuracy", "epochs", "minutes"]
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for (recipe, budget, changes, parameters), rows in sorted(runs.items()):
        tests = [row["test"] for row in rows]
        interval = " ({:.1%} to {:.1%})".format(*mean_interval(tests).interval) if len(tests) >= 3 else ""
        epochs, minutes = (f"{statistics.mean(row[key] for row in rows):.1f}" for key in ("epochs", "minutes"))
        found = f"{parameters:,} | {len(rows)} | {statistics.mean(tests):.2%}{interval}"
        lines.append(f"| {recipe} | {budget} | {changes} | {found} | {epochs} | {minutes} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
