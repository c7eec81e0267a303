"""The models that are served: by name, each a `Predictor` with its card."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitkit.errors import InputError
from vitkit.inference import Predictor
from vitkit.serve.errors import Refusal
from vitkit.weights.model_card import CARD, render_model_card
from vitkit.weights.model_dir import read_metadata


@dataclass(frozen=True)
class Served:
    name: str
    predictor: Predictor
    card: str
    assumed: Sequence[str] = ()  # of weights that do not say it themselves

    def about(self) -> dict[str, Any]:
        """What a client needs to know; nothing of where the model lies."""
        p, model = self.predictor, self.predictor.model
        facts: dict[str, Any] = {
            "name": self.name,
            "classes": list(p.class_names),
            "input": {"height": p.preprocess.size[0], "width": p.preprocess.size[1], "channels": p.preprocess.channels},
            "engine": p.engine.name,
            "explains": model is not None,
        }
        if model is not None:
            c = model.config
            facts |= {"layers": c.depth, "heads": c.heads, "patch": list(c.patch_size)}
            facts["parameters"] = sum(parameter.numel() for parameter in model.parameters())
        return facts

    def class_index(self, wanted: str) -> int:
        """A class by its name, else by its number."""
        names = list(self.predictor.class_names)
        if wanted in names:
            return names.index(wanted)
        if re.fullmatch(r"[0-9]{1,6}", wanted) and int(wanted) < len(names):
            return int(wanted)
        raise Refusal(
            "bad_parameter",
            f"class={wanted[:50]!r}: {self.name} has no such class, nor is it a number below {len(names)}",
        )


def load(sources: Sequence[str], engine: str = "auto", images: int | None = None) -> dict[str, Served]:
    """In the order given. Names are those of the folders or files."""
    served: dict[str, Served] = {}
    for source in sources:
        predictor = Predictor(source, engine, images=images)
        if predictor.preprocess.channels not in (1, 3):
            raise InputError(
                f"{source} takes images of {predictor.preprocess.channels} channels: no image file has such"
            )
        name = _unique(name_of(source), served)
        served[name] = Served(name, predictor, _card(source, name, predictor), _assumed(source, predictor))
    return served


def name_of(source: str) -> str:
    """runs/pets → pets; runs/pets/model → pets; deit.safetensors → deit."""
    path = Path(source) if "://" in source or source.startswith("hf-hub:") else Path(source).resolve()
    name = path.parent.name if path.name == "model" else path.name
    name = Path(name).stem if path.is_file() else name
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "model"


def _unique(name: str, taken: dict[str, Served]) -> str:
    number = 2
    free = name
    while free in taken:
        free, number = f"{name}-{number}", number + 1
    return free


def _assumed(source: str, predictor: Predictor) -> Sequence[str]:
    info = predictor.model.info if predictor.model is not None else None
    return () if info is None or read_metadata(source) else info.origin.get("assumed", ())


def _card(source: str, name: str, predictor: Predictor) -> str:
    for place in (Path(source) / CARD, Path(source) / "model" / CARD, Path(source).parent / CARD):
        described = any((place.parent / file).is_file() for file in ("config.json", "export.json"))
        if Path(source).exists() and place.is_file() and described:
            return place.read_text()
    if predictor.model is not None:
        return render_model_card(name, predictor.model, predictor.model.info)
    return f"# {name}\n\nAn export, run by {predictor.engine.name}. {len(predictor.class_names)} classes.\n"
