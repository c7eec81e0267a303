"""Over HTTP as in Python: the same image, the same model, the same numbers."""

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from vitkit.inference import Predictor

from .client import Server, encoded, picture


def noise(shape: tuple[int, ...], kind: str = "uint8") -> np.ndarray:
    return np.random.default_rng(7).integers(0, np.iinfo(kind).max, shape, dtype=kind)


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def turned() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return saved(Image.fromarray(noise((40, 60, 3))), "JPEG", exif=exif, quality=95)


ODD = {
    "exif": turned,
    "palette": lambda: saved(Image.fromarray(noise((30, 40, 3))).quantize(16), "PNG"),
    "palette with transparency": lambda: saved(Image.fromarray(noise((30, 40, 3))).quantize(8), "GIF", transparency=3),
    "cmyk": lambda: saved(Image.fromarray(noise((30, 40, 4)), mode="CMYK"), "JPEG", quality=95),
    "16 bit": lambda: encoded(noise((30, 40), "uint16")),
    "16 bit tiff": lambda: encoded(noise((30, 40), "uint16"), "TIFF"),
    "alpha": lambda: encoded(noise((30, 40, 4))),
    "grey": lambda: encoded(noise((30, 40))),
    "one bit": lambda: saved(Image.fromarray(noise((30, 40))).convert("1"), "PNG"),
    "one pixel": lambda: encoded(noise((1, 1, 3))),
    "very wide": lambda: encoded(noise((2, 900, 3))),
    "very tall": lambda: encoded(noise((900, 2, 3)), "BMP"),
    "webp": lambda: encoded(noise((30, 40, 3)), "WEBP"),
}


def agree(server: Server, folder: Path, content: bytes) -> None:
    answer = server.post("/v1/predict?top=3", content)
    assert answer.status == 200, answer.content
    found = answer.json()["results"][0]["predictions"]
    expected = Predictor(folder)(content, top=3)
    assert found[0]["label"] == expected[0].label
    assert {p["label"]: p["score"] for p in found} == pytest.approx({p.label: p.score for p in expected}, abs=1e-4)


@pytest.mark.parametrize("name", ODD)
def test_http_and_python_agree_on_odd_images(server: Server, folders: tuple[Path, Path], name: str) -> None:
    agree(server, folders[0], ODD[name]())


@given(
    height=st.integers(1, 80), width=st.integers(1, 80), kind=st.sampled_from(["PNG", "JPEG", "BMP", "WEBP", "TIFF"]),
    shade=st.integers(0, 255),
)  # fmt: skip
def test_http_and_python_agree_on_images_of_any_shape(
    server: Server, folders: tuple[Path, Path], height: int, width: int, kind: str, shade: int
) -> None:
    pixels = (noise((height, width, 3)).astype(int) + shade) // 2
    agree(server, folders[0], encoded(pixels.astype(np.uint8), kind))


def test_the_scores_tell_pictures_apart(server: Server) -> None:
    """Otherwise agreement would mean nothing."""
    answers = [server.post("/v1/predict?top=3", picture(seed=s)).json()["results"][0]["predictions"] for s in (1, 2)]
    assert answers[0] != answers[1]


def test_many_images_are_answered_in_order_and_a_bad_one_does_not_spoil_the_others(server: Server) -> None:
    one, two = picture(seed=1), picture(seed=2)
    answer = server.form("/v1/predict?top=2&model=others", {"a.png": one, "b.txt": b"no image", "c.png": two})
    assert answer.status == 200
    first, bad, second = answer.json()["results"]
    assert [r["name"] for r in (first, bad, second)] == ["a.png", "b.txt", "c.png"]
    assert bad["error"]["code"] == "unsupported_format"
    for result, content in ((first, one), (second, two)):
        alone = server.post("/v1/predict?top=2&model=others", content).json()["results"][0]["predictions"]
        assert [p["label"] for p in result["predictions"]] == [p["label"] for p in alone]
        assert [p["score"] for p in result["predictions"]] == pytest.approx([p["score"] for p in alone], abs=1e-5)


def test_models_are_told_apart_by_name_and_the_first_is_the_default(server: Server) -> None:
    content = picture(seed=3)
    answers = {name: server.post(f"/v1/predict?{name}", content).json() for name in ("", "model=pets", "model=others")}
    assert answers[""] == answers["model=pets"]
    assert answers["model=others"]["results"] != answers[""]["results"]
    assert server.post("/v1/predict?model=nobody", content).code == "unknown_model"


def test_what_is_served_is_listed_without_saying_where_it_lies(server: Server, folders: tuple[Path, Path]) -> None:
    listed = server.get("/v1/models")
    assert [(m["name"], m["classes"], m["layers"]) for m in listed.json()["models"]] == [
        ("pets", ["cat", "dog", "emu"], 3),
        ("others", ["cat", "dog", "emu"], 2),
    ]
    assert str(folders[0].parent).encode() not in listed.content
    card = server.get("/v1/models/pets/card")
    assert card.headers["content-type"].startswith("text/plain")
    assert card.content.decode() == (folders[0] / "README.md").read_text()
