"""Load every ViT-like architecture of timm's registry: each must compute what timm computes, or be refused.

    python -m tests.parity.timm_registry [PATTERN] [--modules MODULE …] [--page FILE]

Each model has depth 2 and random weights. timm itself writes the hub folder. The same weights are also read as a file
that is named after the architecture, and as a bare file whose name says nothing.
"""

import argparse
import contextlib
import fnmatch
import math
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from vitkit.errors import VitkitError
from vitkit.weights.load import load_model
from vitkit.weights.reference_models import import_library

from .compare import TOLERANCE, random_images, randomise

MODULES = (
    "vision_transformer", "deit", "eva", "beit", "vision_transformer_relpos", "vision_transformer_hybrid", "cait",
    "xcit", "swin_transformer", "swin_transformer_v2", "naflexvit",
)  # fmt: skip
SHALLOW = ({"depth": 2}, {"depth": 2, "num_kv_heads": (2, 2)}, {"depths": (1, 1, 1, 1)}, {})


@dataclass(frozen=True)
class Outcome:
    architecture: str
    module: str
    source: str  # "hub folder", "named file" or "bare file"
    difference: float | None  # relative to the largest logit; None: refused
    reason: str = ""

    @property
    def verdict(self) -> str:
        if self.difference is None:
            return "refused"
        return "right" if self.difference <= TOLERANCE else "wrong"


def architectures(pattern: str = "*", modules: tuple[str, ...] = MODULES) -> list[tuple[str, str]]:
    """Return (module, name) of every architecture of these modules whose name matches the pattern."""
    timm = import_library("timm")
    names = ((module, name) for module in modules for name in timm.list_models(module=module))
    return [(module, name) for module, name in names if fnmatch.fnmatch(name, pattern)]


@torch.no_grad()
def try_architecture(module: str, name: str, folder: Path) -> Iterator[Outcome]:
    """Write a model as timm does, load it, and compare the logits of one random image."""
    timm = import_library("timm")
    model, arguments = _small_model(timm, name)
    randomise(model)
    size = model.pretrained_cfg["input_size"]
    with _quiet():
        timm.models.save_for_hf(model, folder / "hub", model_args=arguments)
    bare = folder / "weights.safetensors"
    save_file({key: tensor.contiguous().clone() for key, tensor in model.state_dict().items()}, bare)
    images = random_images(tuple(size[1:]), batch=1, channels=size[0])
    expected = None
    named = bare.with_name(f"{name}.safetensors")
    named.hardlink_to(bare)
    for source, path in (("hub folder", folder / "hub"), ("named file", named), ("bare file", bare)):
        try:
            ours = load_model(path)
        except VitkitError as error:
            yield Outcome(name, module, source, None, str(error).split(": ", 1)[-1])
            continue
        expected = model(images) if expected is None else expected
        found = ours(images if source == "hub folder" or ours.config.accepts(images.shape[2:]) else
                     images[:, :, : ours.config.image_size[0], : ours.config.image_size[1]])  # fmt: skip
        scale = expected.abs().max().item()
        same_shape = found.shape == expected.shape
        difference = (found - expected).abs().max().item() / scale if same_shape else math.inf
        yield Outcome(name, module, source, difference)


def _small_model(timm: Any, name: str) -> tuple[nn.Module, dict[str, Any]]:
    for arguments in SHALLOW:
        with contextlib.suppress(TypeError, AssertionError, RuntimeError, IndexError), _quiet():
            return timm.create_model(name, pretrained=False, **arguments), arguments
    raise RuntimeError(f"timm cannot build {name}")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        yield


def page(outcomes: list[Outcome]) -> str:
    """Return the outcomes in Markdown: one row per architecture, or per module if all of it is refused."""
    rows: dict[str, dict[str, list[Outcome]]] = {}
    for o in outcomes:
        rows.setdefault(o.module, {}).setdefault(o.architecture, []).append(o)
    lines = [HEADER.format(timm=import_library("timm").__version__, torch=torch.__version__)]
    for module, models in rows.items():
        right = sum(found[0].verdict == "right" for found in models.values())
        lines += [f"\n## `{module}`", f"{right} of {len(models)} architectures are supported.\n"]
        if right:
            lines += ["| architecture | hub folder | named file | bare file |", "|---|---|---|---|"]
            lines += [f"| `{name}` | {' | '.join(map(_cell, found))} |" for name, found in models.items()]
        else:
            lines.append("Refused: " + ", ".join(f"`{name}`" for name in models) + ".")
    return "\n".join(lines) + "\n"


def _cell(outcome: Outcome) -> str:
    return outcome.verdict if outcome.difference is None else f"{outcome.difference:.0e}".replace("0e+00", "0")


HEADER = """# Supported checkpoints

Each architecture of timm's modules of Vision Transformers and similar models was built with depth 2 and random
weights, written by timm, loaded by vitkit, and run on one random image. A number is the largest difference of the
outputs, relative to the largest output. At most 1e-5 counts as equal; there was no larger one. "Refused" means an error
message and no model.

- **hub folder**: weights with timm's `config.json`, as on the Hugging Face hub
- **named file**: a file whose name starts with the architecture, or with `--architecture NAME`
- **bare file**: a file with another name. It is refused if published models with such tensors differ in what the
  tensors do not show, for example in the activation.

Written by `python -m tests.parity.timm_registry --page docs/reference/checkpoints.md` with timm {timm} and torch
{torch}. `tests/parity/test_timm_registry.py` repeats it for one or two architectures of each family.

For transformers, `tests/parity/test_transformers_registry.py` compares ViT, ViTMSN, I-JEPA, DeiT with a teacher, DINOv2
with and without registers, DINOv3, SigLIP, SigLIP 2 and CLIP at two sizes, and `tests/parity/test_layouts.py` ViTMAE.
BEiT, AIMv2 and DeiT without a teacher are refused."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pattern", nargs="?", default="*")
    parser.add_argument("--modules", nargs="+", default=MODULES, help="modules of timm.models")
    parser.add_argument("--page", metavar="FILE", help="write the outcomes as a page of the documentation")
    options = parser.parse_args()
    outcomes = []
    for module, name in architectures(options.pattern, tuple(options.modules)):
        with tempfile.TemporaryDirectory() as folder:
            for outcome in try_architecture(module, name, Path(folder)):
                outcomes.append(outcome)
                shown = "" if outcome.difference is None else f"{outcome.difference:.1e}"
                print(
                    f"{outcome.verdict:8}{module:28}{name:52}{outcome.source:12}{shown:9}{outcome.reason}", flush=True
                )
    for module in dict.fromkeys(o.module for o in outcomes):
        for source in ("hub folder", "named file", "bare file"):
            rows = [o.verdict for o in outcomes if (o.module, o.source) == (module, source)]
            print(f"{module:28}{source:12}" + ", ".join(f"{rows.count(v)} {v}" for v in ("right", "refused", "wrong")))
    if options.page:
        Path(options.page).write_text(page(outcomes), encoding="utf-8")
    return 1 if any(o.verdict == "wrong" for o in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
