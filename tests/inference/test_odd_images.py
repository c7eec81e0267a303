"""Unusual images get the same predictions from the command line, Python, ONNX Runtime and OpenVINO."""

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vitkit.cli.main import main
from vitkit.inference import Predictor


def _exif(pixels: np.ndarray, path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    Image.fromarray(pixels).save(path, format="JPEG", exif=exif)


KINDS = {
    "exif": _exif,
    "palette": lambda pixels, path: Image.fromarray(pixels).convert("P").save(path, format="PNG"),
    "cmyk": lambda pixels, path: Image.fromarray(pixels).convert("CMYK").save(path, format="JPEG"),
    "16-bit": lambda pixels, path: Image.fromarray(pixels[..., 0].astype(np.uint16) * 257).save(path, format="PNG"),
    "transparent": lambda pixels, path: Image.fromarray(np.concatenate([pixels, pixels[..., :1]], axis=2), "RGBA").save(
        path, format="PNG"
    ),
    "one bit": lambda pixels, path: Image.fromarray(pixels[..., 0]).convert("1").save(path, format="PNG"),
    "gif": lambda pixels, path: Image.fromarray(pixels).save(path, format="GIF"),
}
SIZES = st.one_of(
    st.tuples(st.integers(1, 4), st.integers(1, 4)),  # tiny
    st.tuples(st.integers(1, 3), st.integers(200, 900)),  # very wide
    st.tuples(st.integers(200, 900), st.integers(1, 3)),  # very tall
    st.tuples(st.integers(5, 60), st.integers(5, 60)),
)


@pytest.fixture(scope="module")
def predictors(folder: Path, onnx_folder: Path, openvino_folder: Path) -> dict[str, Predictor]:
    return {path.name: Predictor(path) for path in (folder, onnx_folder, openvino_folder)}


def by_command(*words: str) -> list[dict]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        assert main(["predict", *words, "--json"]) == 0
    return json.loads(out.getvalue())


@given(kind=st.sampled_from(sorted(KINDS)), size=SIZES, seed=st.integers(0, 2**16))
@settings(suppress_health_check=[])
def test_every_engine_gives_the_same_predictions(
    predictors: dict[str, Predictor],
    folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    size: tuple[int, int],
    seed: int,
) -> None:
    path = tmp_path_factory.getbasetemp() / f"odd {kind}"
    KINDS[kind](np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8), path)
    (printed,) = by_command(str(folder), str(path))
    expected = {p["label"]: p["score"] for p in printed["predictions"]}
    assert len(expected) == 5
    for name, predictor in predictors.items():
        predictions = predictor(path)
        assert predictions[0].label == printed["predictions"][0]["label"], name
        assert {p.label: p.score for p in predictions} == pytest.approx(expected, abs=1e-4), name


def test_the_command_line_gives_the_same_predictions_for_exports(
    folder: Path, onnx_folder: Path, openvino_folder: Path, tmp_path: Path
) -> None:
    draws = np.random.default_rng(0)
    for kind, save in KINDS.items():
        save(draws.integers(0, 256, (40, 30, 3), dtype=np.uint8), tmp_path / f"{kind}.png")
    results = [by_command(str(model), str(tmp_path)) for model in (folder, onnx_folder, openvino_folder)]
    assert len(results[0]) == len(KINDS)
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            assert one["path"] == two["path"]
            assert [p["label"] for p in one["predictions"]] == [p["label"] for p in two["predictions"]]
            scores = [[p["score"] for p in x["predictions"]] for x in (one, two)]
            assert scores[0] == pytest.approx(scores[1], abs=1e-4)
