"""Export models to ONNX Runtime and OpenVINO, in float32 and int8, and measure each export.

    python benchmarks/exports.py --digits RUN --cifar RUN --data-dir DIR --shared ../shared/data > results/exports.txt

digits   a run of `vitkit demo`, evaluated on the test split of the digits
cifar    a run of `vitkit train cifar10`, evaluated on images of the CIFAR-10 test split
deit     DeiT-Tiny as published (1,000 classes), compared on grocery photographs, which have other labels
grocery  DeiT-Tiny with a linear head fitted here on the grocery training photographs, evaluated on the validation ones
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from heading import heading

from vitkit.data.decode_pipeline import read_split
from vitkit.data.open import open_data
from vitkit.export.export import export_model
from vitkit.export.parity import Tolerance
from vitkit.model import ViT
from vitkit.weights.load import load_model

WAYS = [("onnx", True), ("openvino", True), ("onnx", False), ("openvino", False)]
# Int8 exports beyond the tolerance are measured here instead of refused.
LENIENT = Tolerance(logits=None, agreement=0.0, accuracy_loss=None)


def deit(shared: Path) -> ViT:
    names = shared / "imagenet1k_classes.json"
    return load_model(shared / "deit_tiny_patch16_224_in1k.safetensors", class_names=names)


def grocery(shared: Path, head_images: int) -> ViT:
    """Fit a linear head by logistic regression on the class token, without hyperparameters to tune."""
    from sklearn.linear_model import LogisticRegression

    model = deit(shared)
    data = open_data(shared / "grocery.parquet")
    train = data.splits["train"]
    some = np.linspace(0, len(train) - 1, min(head_images, len(train))).round().astype(np.int64)
    arrays, kept, _ = read_split(train.subset(some), model.info.preprocess.array)
    pixels = torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2)
    with torch.inference_mode():
        parts = [model.forward_features(model.info.preprocess.normalize(p))[:, 0] for p in pixels.split(32)]
    fitted = LogisticRegression(C=1.0, max_iter=200).fit(torch.cat(parts).numpy(), kept.labels)
    model.reset_classifier(len(data.class_names))
    with torch.no_grad():
        model.head.weight[torch.from_numpy(fitted.classes_)] = torch.from_numpy(fitted.coef_).float()
        model.head.bias[torch.from_numpy(fitted.classes_)] = torch.from_numpy(fitted.intercept_).float()
    model.info = model.info.replace(class_names=tuple(data.class_names))
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--digits", type=Path)
    parser.add_argument("--cifar", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--shared", type=Path)
    parser.add_argument("--images", type=int, default=100_000, help="maximum number of images to evaluate")
    parser.add_argument("--head-images", type=int, default=100_000, help="maximum number to fit the grocery head")
    parser.add_argument("--only", nargs="*", help="some of digits, cifar, deit, grocery")
    args = parser.parse_args()
    print(heading("onnxruntime", "openvino", "nncf"))
    jobs = {
        "digits": (args.digits, lambda: load_model(args.digits), "digits"),
        "cifar": (args.cifar, lambda: load_model(args.cifar), "cifar10"),
        "deit": (
            args.shared,
            lambda: deit(args.shared),
            args.shared and args.shared / "grocery.parquet",
        ),
        "grocery": (
            args.shared,
            lambda: grocery(args.shared, args.head_images),
            args.shared and args.shared / "grocery.parquet",
        ),
    }
    print(f"{'model':8} {'runtime':9} {'':5} {'images':>6} {'max |Δ logit|':>13} {'of':>6} {'agrees':>8} "
          f"{'top-1 before → after':>21} {'MB':>7} {'× torch, 1 image':>17} {'seconds':>8}", flush=True)  # fmt: skip
    for name, (given, load, data) in jobs.items():
        if given is None or (args.only and name not in args.only):
            continue
        model = load()
        for to, int8 in WAYS:
            with tempfile.TemporaryDirectory() as folder:
                start = time.perf_counter()
                done = export_model(
                    model, Path(folder) / "out", to, int8=int8, calibrate=data, data_dir=args.data_dir,
                    images=args.images, tolerance=LENIENT if int8 else None,
                )  # fmt: skip
                (p,) = done.files.values()
                tops = "" if p.top1_before is None else f"{p.top1_before:.2%} → {p.top1_after:.2%}"
                print(f"{name:8} {to:9} {'int8' if int8 else 'fp32':5} {p.n:6,} {p.max_logit_difference:13.2e} "
                      f"{p.largest_logit:6.1f} {p.agreement:8.2%} {tops:>21} {p.size / 1e6:7.2f} {p.speedup:17.2f} "
                      f"{time.perf_counter() - start:8.0f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
