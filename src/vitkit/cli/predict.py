from dataclasses import asdict, dataclass

from tyro.conf import Positional

from vitkit.cli.show import print_json, print_table, tracked


@dataclass(frozen=True)
class Predict:
    """Name what images show: the best labels with their scores."""

    model: Positional[str]
    """A model folder or a run folder."""
    images: Positional[tuple[str, ...]]
    """Image files, folders of them, or patterns."""
    top: int = 5
    """How many labels per image."""
    batch: int = 32
    """Images at a time."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> int:
        import sys

        from vitkit.errors import CorruptImageError
        from vitkit.infer import Predictor, find_images

        paths = find_images(self.images)
        predictor = Predictor(self.model)
        answers, bad = [], 0
        with tracked("predicting", quiet=self.json or len(paths) <= self.batch) as progress:
            for start in range(0, len(paths), self.batch):
                for path, found in predictor.files(paths[start : start + self.batch], self.top):
                    if isinstance(found, CorruptImageError):
                        bad += 1
                        print(f"vitkit: left out: {found}", file=sys.stderr)
                    else:
                        answers.append({"path": str(path), "predictions": [asdict(p) for p in found]})
                progress(min(start + self.batch, len(paths)), len(paths))
        if self.json:
            print_json(answers)
        else:
            _show(answers, self.model)
        if bad:
            print(f"vitkit: {bad} of {len(paths)} images could not be read", file=sys.stderr)
        return 1 if bad else 0


def _show(answers: list[dict], model: str) -> None:
    print_table(
        f"{len(answers)} images, by {model}",
        ["image", "is", "score", "or else"],
        [
            [a["path"], a["predictions"][0]["label"], f"{a['predictions'][0]['score']:.1%}",
             ", ".join(f"{p['label']} {p['score']:.1%}" for p in a["predictions"][1:])]
            for a in answers
        ],
    )  # fmt: skip
