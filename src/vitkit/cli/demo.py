import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitkit.cli.output import JsonOption, console, print_json, print_table
from vitkit.cli.train import print_result

MARKER = ".vitkit-demo"  # in a folder that may be replaced


@dataclass(frozen=True)
class Demo:
    """Train, evaluate, explain and report on handwritten digits, which need no download."""

    out: str = "runs/demo"
    """Write the run folder here, replacing an earlier demo."""
    epochs: float | None = None
    """Train for this number of epochs. Default: 40."""
    seed: int = 0
    """Random seed."""
    json: JsonOption = False

    def run(self) -> int:
        console(stderr=True).print(
            "[bold]vitkit demo[/]: a Vision Transformer learns handwritten digits, 8×8 pixels in 16 patches"
        )
        from vitkit.report import LiveReport, write_report
        from vitkit.training import get_recipe
        from vitkit.training.train import train

        _replace_earlier_demo(Path(self.out))
        recipe = get_recipe("digits").replace(seed=self.seed)
        if self.epochs is not None:
            recipe = recipe.replace(budget=replace(recipe.budget, epochs=self.epochs))
        with LiveReport() as live:
            result = train(recipe, self.out, quiet=self.json, on_record=live)
        predictions = _predict_examples(self.out)
        report = write_report(self.out)
        if self.json:
            print_json(result.to_dict() | {"predictions": predictions, "report": str(report)})
            return 0
        print_result(result)
        print_table(
            "A few test images",
            ["image", "label", "prediction", "score"],
            [[p["path"], p["label"], p["predicted"], f"{p['score']:.1%}"] for p in predictions],
        )
        console().print(
            f"model    {self.out}/model\nreport   {report}   ← curves, attention maps, errors: open it in a browser\n"
            "next     vitkit inspect YOUR_FOLDER   ← describes a folder of class folders, and how to train on it"
        )
        return 0


def _replace_earlier_demo(folder: Path) -> None:
    """Remove an earlier demo. A folder that no demo made stays, and `train` refuses to overwrite it."""
    if (folder / MARKER).exists():
        shutil.rmtree(folder)
    if not folder.exists():
        folder.mkdir(parents=True)
        (folder / MARKER).touch()


def _predict_examples(run: str, count: int = 5) -> list[dict[str, Any]]:
    from vitkit.data.open import open_data
    from vitkit.inference import Predictor

    data = open_data("digits")
    test = data.splits["test"]
    found = Predictor(run).predict_many([test.images[i] for i in range(count)], top=1)
    return [
        {
            "path": test.images.name(i),
            "label": data.class_names[test.labels[i]],
            "predicted": best.label,
            "score": best.score,
        }
        for i, (best,) in enumerate(found)
    ]
