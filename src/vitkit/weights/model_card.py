"""The model card: README.md of a model folder."""

from collections.abc import Mapping
from typing import Any

from vitkit.model import ModelInfo, ViT

CARD = "README.md"


def render_model_card(name: str, model: ViT, info: ModelInfo) -> str:
    c = model.config
    parameters = sum(p.numel() for p in model.parameters())
    lines = [
        f"# {name}",
        "",
        f"A Vision Transformer of {parameters / 1e6:.2f} M parameters: width {c.width}, {c.depth} layers, "
        f"{c.heads} heads, patches of {c.patch_size[0]}×{c.patch_size[1]} pixels "
        f"on images of {c.image_size[0]}×{c.image_size[1]}.",
        "",
        "```python",
        "import vitkit",
        f'model = vitkit.load_model("{name}")',
        "```",
        "",
    ]
    if info.metrics:
        lines += ["## Measured", "", "| | |", "|---|---|"]
        lines += [f"| {key} | {value} |" for key, value in info.metrics.items()] + [""]
    if info.data:
        lines += ["## Trained on", "", *(f"- {key}: {_plain(value)}" for key, value in info.data.items()), ""]
    if info.preprocess:
        settings = {key: value for key, value in info.preprocess.to_dict().items() if value is not None}
        lines += ["## Preprocessing", "", *(f"- {key}: {_plain(value)}" for key, value in settings.items()), ""]
    if info.class_names:
        lines += [f"## {len(info.class_names)} classes", "", ", ".join(info.class_names), ""]
    if info.origin:
        lines += ["## Origin", "", f"- converted from {info.origin.get('source')}, layout {info.origin.get('layout')}"]
        lines += [f"- {line}" for key in ("assumed", "adapted") for line in info.origin.get(key, ())] + [""]
    lines += ["## Licence", "", info.license or "not stated", ""]
    return "\n".join(lines)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{_plain(v)} {k}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
