from dataclasses import dataclass

from tyro.conf import Positional

from vitkit.cli.output import JsonOption, giga, millions, print_json, print_table


@dataclass(frozen=True)
class Models:
    """List the model variants: size, parameters, GMACs."""

    pattern: Positional[str] = "*"
    """A shell pattern or a part of the name, such as 'base' or 'vit_*_patch16_*'."""
    json: JsonOption = False

    def run(self) -> int:
        from vitkit.model.summary import totals
        from vitkit.model.variants import find_variants

        rows = [(variant, totals(variant.config)) for variant in find_variants(self.pattern)]
        if self.json:
            print_json(
                [
                    {"name": v.name, "parameters": t.parameters, "macs": t.macs, "source": v.source}
                    | {"config": v.config.to_dict()}
                    for v, t in rows
                ]
            )
            return 0
        print_table(
            f"{len(rows)} models",
            ["name", "image", "patch", "width", "depth", "heads", "MLP", "M parameters", "GMACs", "source"],
            [
                [v.name, _size(v.config.image_size), _size(v.config.patch_size), v.config.width, v.config.depth,
                 v.config.heads, v.config.mlp_width, millions(t.parameters), giga(t.macs), v.source]
                for v, t in rows
            ],
        )  # fmt: skip
        return 0


def _size(pair: tuple[int, int]) -> str:
    return str(pair[0]) if pair[0] == pair[1] else f"{pair[0]}×{pair[1]}"
