from dataclasses import asdict, dataclass

from tyro.conf import Positional

from vitkit.cli.model import open_config
from vitkit.cli.output import giga, millions, print_json, print_table


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
        from vitkit.errors import UsageError
        from vitkit.model.summary import summarize

        if self.depth < 0:
            raise UsageError(f"--depth {self.depth}: must not be negative")
        config = open_config(self.model)
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
