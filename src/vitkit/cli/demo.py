import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitkit.cli.output import console, print_json, print_table
from vitkit.cli.train import show_result

MARK = ".vitkit-demo"  # in a folder that may be replaced


@dataclass(frozen=True)
class Demo:
    """The whole story on embedded data: train, evaluate, explain, report."""

    out: str = "runs/demo"
    """The run folder to make; an earlier demo there is replaced."""
    epochs: float | None = None
    """Fewer for a quicker look."""
    seed: int = 0
    """Another one gives another run."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> int:
        console(stderr=True).print(
            "[bold]vitkit demo[/]: a Vision Transformer learns handwritten digits, 8×8 pixels in 16 patches"
        )
        from vitkit.report import LiveReport, write_report
        from vitkit.training import get_recipe, train

        _make_room(Path(self.out))
        recipe = replace(get_recipe("digits"), seed=self.seed)
        if self.epochs is not None:
            recipe = replace(recipe, budget=replace(recipe.budget, epochs=self.epochs))
        with LiveReport() as live:
            result = train(recipe, self.out, quiet=self.json, on_record=live)
        answers = _predict_some(self.out)
        report = write_report(self.out)
        if self.json:
            print_json(result.to_dict() | {"predictions": answers, "report": str(report)})
            return 0
        show_result(result)
        print_table(
            "A few images it has never seen",
            ["image", "is", "predicted", "score"],
            [[a["path"], a["label"], a["predicted"], f"{a['score']:.1%}"] for a in answers],
        )
        console().print(
            f"model    {self.out}/model\nreport   {report}   ← curves, attention maps, mistakes: open it in a browser\n"
            "next     vitkit inspect YOUR_FOLDER   ← a folder of class folders: what is in it, and how to train on it"
        )
        return 0


def _make_room(folder: Path) -> None:
    """A demo may be run again; a folder that no demo made is left alone, and `train` says so."""
    if (folder / MARK).exists():
        shutil.rmtree(folder)
    if not folder.exists():
        folder.mkdir(parents=True)
        (folder / MARK).touch()


def _predict_some(run: str, count: int = 5) -> list[dict[str, Any]]:
    from vitkit.data.open import open_data
    from vitkit.inference import Predictor

    data = open_data("digits")
    test = data.splits["test"]
    answers = Predictor(run).many([test.images[i] for i in range(count)], top=1)
    return [
        {
            "path": test.images.name(i),
            "label": data.class_names[test.labels[i]],
            "predicted": best.label,
            "score": best.score,
        }
        for i, (best,) in enumerate(answers)
    ]
