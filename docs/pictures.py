"""Draw the pictures of the README from a finished demo: `vitkit demo && python docs/pictures.py`."""

import json
import sys
from pathlib import Path

import numpy as np

import vitkit
from vitkit.data.source import open_data
from vitkit.explain import attention_map
from vitkit.report import figures

RUN = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo")
OUT = Path(__file__).parent / "images"


def attention() -> None:
    model = vitkit.load_model(RUN)
    test = open_data("digits").splits["test"]
    first_of_each = [int(np.flatnonzero(test.labels == digit)[0]) for digit in (0, 3, 4, 5, 8)]
    pixels = model.info.preprocess.batch([test.images[i] for i in first_of_each])
    images = model.info.preprocess.normalize(pixels)
    answers = model(images).argmax(dim=1).tolist()
    names = model.info.class_names
    sheet = figures.attention_sheet(
        list(pixels.permute(0, 2, 3, 1).numpy()),
        attention_map(model, images).numpy(),
        [f"says {names[a]}" for a in answers],
        [a == test.labels[i] for a, i in zip(answers, first_of_each, strict=True)],
    )
    sheet.savefig(OUT / "attention.png", dpi=110, facecolor="white")


def curves() -> None:
    lines = (RUN / "metrics.jsonl").read_text().splitlines()
    figures.curves([json.loads(line) for line in lines]).savefig(OUT / "curves.png", dpi=80, facecolor="white")


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    for draw in (attention, curves):
        draw()
