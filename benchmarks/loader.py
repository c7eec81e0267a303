"""Compare images/s of the data loader with plain Pillow on the same files, and with the need of a training step.

    python benchmarks/loader.py --groceries ../shared/data/grocery.parquet --cifar10 FOLDER_OF_CIFAR10_NPZ [--json]

The photographs are unpacked into a temporary folder: as they are (256 pixels), and enlarged to 1024 pixels, the size of
a camera's. The measurement itself is `vitkit bench --load` (src/vitkit/bench/loading.py).
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from heading import heading
from PIL import Image

from vitkit.bench import bench_loading
from vitkit.data.dataset import Split
from vitkit.data.open import open_data
from vitkit.model.variants import get_config


def unpack(parquet: Path, folder: Path, count: int, side: int | None) -> Path:
    """Write the first `count` photographs into class folders, as they are or enlarged."""
    import pyarrow.parquet as pq

    for i, row in enumerate(pq.read_table(parquet, columns=["image", "label"]).slice(0, count).to_pylist()):
        content = row["image"]["bytes"] if isinstance(row["image"], dict) else row["image"]
        path = folder / str(row["label"]) / f"{i:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if side:
            image = Image.open(path).convert("RGB")
            scale = side / min(image.size)
            size = (round(image.width * scale), round(image.height * scale))
            image.resize(size, Image.Resampling.BICUBIC).save(path, quality=90)
    return folder


def contests(groceries: Path, cifar10: Path | None, scratch: Path) -> Iterator[tuple[str, Split, str, int]]:
    """Yield (title, images, the model they are loaded for, batch)."""
    for title, side, count in (("photographs, 256 px", None, 1000), ("photographs, 1024 px", 1024, 200)):
        folder = unpack(groceries, scratch / title, count, side)
        yield title, open_data(folder, val_fraction=0).splits["train"], "vit_tiny_patch16_224", 16
    if cifar10:
        yield "CIFAR-10, in memory", open_data("cifar10", data_dir=cifar10).splits["train"], "vit_nano_patch4_32", 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groceries", type=Path, required=True, help="grocery.parquet")
    parser.add_argument("--cifar10", type=Path, help="the folder that holds cifar10.npz; skipped if not given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="vitkit-loader-") as scratch:
        for title, split, model, batch in contests(options.groceries, options.cifar10, Path(scratch)):
            found = bench_loading(split, get_config(model), batch, rounds=options.rounds)
            rows += [{"data": title, "model": model, **row.to_dict()} for row in found]
    if options.json:
        json.dump({"where": heading("pillow"), "rows": rows}, sys.stdout, indent=2)
        print()
        return
    print(heading("pillow"))
    for title in dict.fromkeys(row["data"] for row in rows):
        mine = [row for row in rows if row["data"] == title]
        pillow = next(row["images_per_s"] for row in mine if row["name"] == "pillow")
        print(f"\n{title:28} images/s  to pillow  (medians of {options.rounds} rounds, for {mine[0]['model']})")
        for row in mine:
            print(f"  {row['name']:26} {row['images_per_s']:8,.1f}  {row['images_per_s'] / pillow:9.2f}")


if __name__ == "__main__":
    main()
