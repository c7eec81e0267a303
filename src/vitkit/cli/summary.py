from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tyro.conf import Positional

from vitkit.cli.show import giga, millions, print_json, print_table

if TYPE_CHECKING:
    from vitkit.model import ViTConfig


@dataclass(frozen=True)
class Summary:
    """Show a model layer by layer: shape, parameters, GMACs."""

    model: Positional[str]
    """A model name, a model or run folder, a foreign checkpoint, or a hub name."""
    image_size: int | tuple[int, int] | None = None
    """Count for images of this size (height and width) instead of the model's own."""
    depth: int = 3
    """How many levels of modules to show; 0 shows the totals only."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> int:
        from vitkit.model.summary import summarize

        config = _config(self.model)
        size = (self.image_size, self.image_size) if isinstance(self.image_size, int) else self.image_size
        rows = summarize(config, size, self.depth)
        if self.json:
            print_json({"model": self.model, "config": config.to_dict(), "layers": [asdict(r) for r in rows]})
            return 0
        whole = rows[0]
        print_table(
            f"{self.model}: {millions(whole.parameters)} M parameters, {giga(whole.macs)} GMACs per image",
            ["layer", "kind", "output", "parameters", "GMACs", "share"],
            [
                ["  " * r.path.count(".") + r.path.split(".")[-1] if r.path else "(model)", r.kind,
                 " × ".join(map(str, r.shape[1:])), f"{r.parameters:,}", giga(r.macs), f"{r.macs / whole.macs:.1%}"]
                for r in rows
            ],
        )  # fmt: skip
        return 0


def _config(model: str) -> "ViTConfig":
    from pathlib import Path

    from vitkit.model.variants import get_config
    from vitkit.weights.folder import read_config
    from vitkit.weights.hub import is_name

    return read_config(model) if Path(model).exists() or is_name(model) else get_config(model)
