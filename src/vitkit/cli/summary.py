from dataclasses import asdict, dataclass

from tyro.conf import Positional

from vitkit.cli.model_args import open_config
from vitkit.cli.output import JsonOption, giga, millions, print_json, print_table


@dataclass(frozen=True)
class Summary:
    """Show a model layer by layer: shape, parameters, GMACs."""

    model: Positional[str]
    """A model name, a model or run folder, a checkpoint of another library, or a hub name."""
    image_size: int | tuple[int, int] | None = None
    """Count for images of this size (one number, or height and width) instead of the model's own."""
    depth: int = 3
    """Show this many levels of modules. 0 shows only the totals."""
    json: JsonOption = False

    def run(self) -> int:
        from vitkit.errors import UsageError
        from vitkit.model.summary import summarize

        if self.depth < 0:
            raise UsageError(f"--depth {self.depth}: must not be negative")
        config, model_class = open_config(self.model)
        size = (self.image_size, self.image_size) if isinstance(self.image_size, int) else self.image_size
        rows = summarize(config, size, self.depth, model_class)
        if self.json:
            print_json({"model": self.model, "config": config.to_dict(), "layers": [asdict(r) for r in rows]})
            return 0
        total = rows[0]
        print_table(
            f"{self.model}: {millions(total.parameters)} M parameters, {giga(total.macs)} GMACs per image",
            ["layer", "kind", "output", "parameters", "GMACs", "share"],
            [
                ["  " * r.path.count(".") + r.path.split(".")[-1] if r.path else "(model)", r.kind,
                 " × ".join(map(str, r.shape[1:])), f"{r.parameters:,}", giga(r.macs), f"{r.macs / total.macs:.1%}"]
                for r in rows
            ],
        )  # fmt: skip
        return 0
