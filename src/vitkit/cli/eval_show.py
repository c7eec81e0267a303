"""How `vitkit eval` shows what it measured."""

from typing import TYPE_CHECKING, Any

from vitkit.cli.eval_data import ALL
from vitkit.cli.output import MAX_CLASS_ROWS, console, print_table

if TYPE_CHECKING:
    from vitkit.evaluation import Evaluation


def show(evaluation: "Evaluation", answer: dict[str, Any]) -> None:
    e, say = evaluation, console().print
    intervals = [f"{low:.2%} to {high:.2%}" for low, high in (e.top1_interval, e.top5_interval)]
    where = "all of it" if answer["split"] == ALL else f"{answer['split']} split"
    print_table(
        f"{answer['model']} on {answer['data']}, {where}: {e.n:,} images",
        ["measure", "value", "95 % interval"],
        [
            ["top-1", f"{e.top1:.2%}", intervals[0]],
            ["top-5", f"{e.top5:.2%}", intervals[1]],
            ["balanced accuracy", f"{e.balanced_accuracy:.2%}", ""],
            ["macro F1", f"{e.macro_f1:.2%}", ""],
            ["negative log-likelihood", f"{e.nll:.4f}", ""],
            ["calibration error (ECE)", f"{e.ece:.4f}", ""],
        ],
    )
    _show_classes(e)
    if e.mistakes:
        print_table(
            "Most confident mistakes",
            ["image", "is", "predicted", "score"],
            [[m.path, m.label, m.predicted, f"{m.score:.1%}"] for m in e.mistakes[:10]],
        )
    if "sizes" in answer:
        print_table(
            "By image size",
            ["size", "top-1", "95 % interval", "images/s"],
            [
                [r["size"], f"{r['top1']:.2%}", f"{r['interval'][0]:.2%} to {r['interval'][1]:.2%}",
                 f"{r['images_per_s']:,.0f}"]
                for r in answer["sizes"]
            ],
        )  # fmt: skip
    if "temperature" in answer:
        t = answer["temperature"]
        say(
            f"with a temperature of {t['value']:.3f}, fitted on {t['fitted_on']}: calibration error {t['ece']:.4f}, "
            f"negative log-likelihood {t['nll']:.4f}",
            markup=False,
        )
    if "against" in answer:
        say(answer["against"]["words"], markup=False)
        if "caution" in answer["against"]:
            say(answer["against"]["caution"], markup=False)
    for line in e.predictions.skipped:
        console(stderr=True).print(f"left out: {line}", markup=False)


def _show_classes(e: "Evaluation") -> None:
    weakest = sorted(e.per_class, key=lambda s: (s.f1 is None, s.f1))
    more = f" ({MAX_CLASS_ROWS} of {len(weakest):,}; --json has all)" if len(weakest) > MAX_CLASS_ROWS else ""
    print_table(
        f"Per class, weakest first{more}",
        ["class", "precision", "recall", "F1", "images"],
        [
            [s.label, *("" if v is None else f"{v:.2%}" for v in (s.precision, s.recall, s.f1)), s.support]
            for s in weakest[:MAX_CLASS_ROWS]
        ],
    )
