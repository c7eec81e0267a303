"""Compare images per second of a model in int8 and in float32, in every runtime. All take turns.

    python benchmarks/int8.py MODEL DATA [--batch 8 1] > benchmarks/results/int8.txt

The int8 ranges are calibrated on training images of DATA. `exports.txt` has the accuracies.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from heading import heading

from vitkit.export.export import export_model
from vitkit.export.metadata import find_exported
from vitkit.export.parity import Tolerance
from vitkit.export.runtimes import ExportedModel
from vitkit.inference.engines import make_engine
from vitkit.runtime.timing import medians, time_calls
from vitkit.weights.load import load_model

SPEED_ONLY = Tolerance(logits=None, agreement=0.0, accuracy_loss=None)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("data")
    p.add_argument("--batch", type=int, nargs="+", default=[8, 1])
    p.add_argument("--rounds", type=int, default=7)
    a = p.parse_args()
    model = load_model(a.model)
    preprocess = model.info.preprocess
    engines = {f"{name} float32": make_engine(name, model, preprocess) for name in ("eager", "compiled", "onnx")}
    engines["openvino float32"] = make_engine("openvino", model, preprocess)
    with tempfile.TemporaryDirectory() as folder:
        for to in ("onnx", "openvino"):
            out = Path(folder) / to
            export_model(model, out, to, int8=True, calibrate=a.data, images=32, tolerance=SPEED_ONLY)
            engines[f"{to} int8"] = ExportedModel(find_exported(out))
        print(heading("onnxruntime", "openvino", "nncf"))
        for batch in a.batch:
            shape = (batch, *preprocess.size, preprocess.channels)
            pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
            runs = {name: partial(engine, pixels) for name, engine in engines.items()}
            middle = medians(time_calls(runs, a.rounds, turn_seconds=0.4))
            best = min(took for name, took in middle.items() if name.endswith("float32"))
            for name, took in middle.items():
                print(
                    f"batch {batch}  {name:18} {batch / took:8.1f} images/s  {best / took:5.2f} × the fastest float32"
                )
            print(flush=True)


if __name__ == "__main__":
    main()
