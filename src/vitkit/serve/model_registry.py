"""The served models: each has a name, a `Predictor` and a model card."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitkit.errors import InputError
from vitkit.explanation.result import class_index
from vitkit.inference import Predictor
from vitkit.serve.errors import APIError
from vitkit.weights.model_card import CARD, render_model_card
from vitkit.weights.model_dir import read_metadata


@dataclass(frozen=True)
class ServedModel:
    name: str
    predictor: Predictor
    card: str
    assumptions: Sequence[str] = ()  # about weights without metadata

    def describe(self) -> dict[str, Any]:
        """Return the entry of `/v1/models`. It does not reveal the path of the model."""
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
        """Return the index of a class given by name or by number."""
        names = self.predictor.class_names
        if wanted in names or (re.fullmatch(r"[0-9]{1,6}", wanted) and int(wanted) < len(names)):
            try:
                return class_index(names, wanted)
            except InputError as error:
                raise APIError("bad_parameter", str(error)) from error
        message = f"class={wanted[:50]!r}: expected a class name of {self.name} or a number below {len(names)}"
        raise APIError("bad_parameter", message)


def load_models(sources: Sequence[str], engine: str = "auto") -> dict[str, ServedModel]:
    """Load models in the order given. Each gets the name of its folder or file."""
    served: dict[str, ServedModel] = {}
    for source in sources:
        predictor = Predictor(source, engine)
        if (channels := predictor.preprocess.channels) not in (1, 3):
            raise InputError(f"{source} expects {channels} channels: only models for 1 or 3 channels can be served")
        name = _unique(model_name(source), served)
        served[name] = ServedModel(name, predictor, _card(source, name, predictor), _assumptions(source, predictor))
    return served


def model_name(source: str) -> str:
    """Return pets for runs/pets and for runs/pets/model, deit for deit.safetensors."""
    path = Path(source) if "://" in source or source.startswith("hf-hub:") else Path(source).resolve()
    name = path.parent.name if path.name == "model" else path.name
    name = Path(name).stem if path.is_file() else name
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "model"


def _unique(name: str, taken: dict[str, ServedModel]) -> str:
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}-{number}", number + 1
    return candidate


def _assumptions(source: str, predictor: Predictor) -> Sequence[str]:
    info = predictor.model.info if predictor.model is not None else None
    return () if info is None or read_metadata(source) else info.origin.get("assumed", ())


def _card(source: str, name: str, predictor: Predictor) -> str:
    for path in (Path(source) / CARD, Path(source) / "model" / CARD, Path(source).parent / CARD):
        is_model_card = any((path.parent / file).is_file() for file in ("config.json", "export.json"))
        if Path(source).exists() and path.is_file() and is_model_card:
            return path.read_text("utf-8")
    if predictor.model is not None:
        return render_model_card(name, predictor.model, predictor.model.info)
    return f"# {name}\n\nExported model, run by {predictor.engine.name}. {len(predictor.class_names)} classes.\n"
