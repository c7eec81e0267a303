"""The endpoints return the same numbers as Python, and errors for what they do not support."""

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from vitkit.inference import Predictor

from .client import Server, encoded, noise_png


def pixels(shape: tuple[int, ...], kind: str = "uint8") -> np.ndarray:
    return np.random.default_rng(7).integers(0, np.iinfo(kind).max, shape, dtype=kind)


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def rotated_by_exif() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return saved(Image.fromarray(pixels((40, 60, 3))), "JPEG", exif=exif, quality=95)


ODD = {
    "exif": rotated_by_exif,
    "palette": lambda: saved(Image.fromarray(pixels((30, 40, 3))).quantize(16), "PNG"),
    "palette with transparency": lambda: saved(Image.fromarray(pixels((30, 40, 3))).quantize(8), "GIF", transparency=3),
    "cmyk": lambda: saved(Image.fromarray(pixels((30, 40, 4)), mode="CMYK"), "JPEG", quality=95),
    "16 bit": lambda: encoded(pixels((30, 40), "uint16")),
    "16 bit tiff": lambda: encoded(pixels((30, 40), "uint16"), "TIFF"),
    "alpha": lambda: encoded(pixels((30, 40, 4))),
    "grey": lambda: encoded(pixels((30, 40))),
    "one bit": lambda: saved(Image.fromarray(pixels((30, 40))).convert("1"), "PNG"),
    "one pixel": lambda: encoded(pixels((1, 1, 3))),
    "very wide": lambda: encoded(pixels((2, 900, 3))),
    "very tall": lambda: encoded(pixels((900, 2, 3)), "BMP"),
    "webp": lambda: encoded(pixels((30, 40, 3)), "WEBP"),
}


def assert_agreement(server: Server, folder: Path, content: bytes) -> None:
    response = server.post("/v1/predict?top=3", content)
    assert response.status == 200, response.content
    found = response.json()["results"][0]["predictions"]
    expected = Predictor(folder)(content, top=3)
    assert found[0]["label"] == expected[0].label
    assert {p["label"]: p["score"] for p in found} == pytest.approx({p.label: p.score for p in expected}, abs=1e-4)


@pytest.mark.parametrize("name", ODD)
def test_http_and_python_agree_on_odd_images(server: Server, folders: tuple[Path, Path], name: str) -> None:
    assert_agreement(server, folders[0], ODD[name]())


@given(
    height=st.integers(1, 80), width=st.integers(1, 80), kind=st.sampled_from(["PNG", "JPEG", "BMP", "WEBP", "TIFF"]),
    shade=st.integers(0, 255),
)  # fmt: skip
def test_http_and_python_agree_on_images_of_any_shape(
    server: Server, folders: tuple[Path, Path], height: int, width: int, kind: str, shade: int
) -> None:
    array = (pixels((height, width, 3)).astype(int) + shade) // 2
    assert_agreement(server, folders[0], encoded(array.astype(np.uint8), kind))


def test_scores_differ_between_images(server: Server) -> None:
    """Without this, the agreement tests would prove nothing."""
    one, two = (server.post("/v1/predict?top=3", noise_png(seed=s)).json()["results"][0] for s in (1, 2))
    assert one["predictions"] != two["predictions"]


def test_several_images_keep_their_order_and_one_bad_image_does_not_affect_the_others(server: Server) -> None:
    one, two = noise_png(seed=1), noise_png(seed=2)
    response = server.form("/v1/predict?top=2&model=others", {"a.png": one, "b.txt": b"no image", "c.png": two})
    assert response.status == 200
    first, bad, second = response.json()["results"]
    assert [r["name"] for r in (first, bad, second)] == ["a.png", "b.txt", "c.png"]
    assert bad["error"]["code"] == "unsupported_format"
    for result, content in ((first, one), (second, two)):
        alone = server.post("/v1/predict?top=2&model=others", content).json()["results"][0]["predictions"]
        assert [p["label"] for p in result["predictions"]] == [p["label"] for p in alone]
        assert [p["score"] for p in result["predictions"]] == pytest.approx([p["score"] for p in alone], abs=1e-5)


def test_models_are_selected_by_name_and_the_first_is_the_default(server: Server) -> None:
    content = noise_png(seed=3)
    responses = {
        name: server.post(f"/v1/predict?{name}", content).json() for name in ("", "model=pets", "model=others")
    }
    assert responses[""] == responses["model=pets"]
    assert responses["model=others"]["results"] != responses[""]["results"]
    assert server.post("/v1/predict?model=nobody", content).code == "unknown_model"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 415, "unsupported_format"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415, "unsupported_format"),
        (b"%PDF-1.7 and so on and on", 415, "unsupported_format"),
        (noise_png()[:200], 422, "unreadable_image"),
        (noise_png()[:8], 422, "unreadable_image"),
        (b"\xff\xd8\xff" + bytes(100), 422, "unreadable_image"),
    ],
)
def test_bad_images_are_rejected_by_their_content(server: Server, body: bytes, status: int, code: str) -> None:
    for path in ("/v1/predict", "/v1/attention", "/v1/explain"):
        response = server.post(path, body, Content_Type="image/png")
        assert (response.status, response.code) == (status, code), path


def test_forms_must_be_complete_and_contain_files(server: Server) -> None:
    kind = "multipart/form-data; boundary=b0"
    field = b'--b0\r\nContent-Disposition: form-data; name="url"\r\n\r\nhttp://127.0.0.1/\r\n--b0--\r\n'
    half = b'--b0\r\nContent-Disposition: form-data; name="a"; filename="a"\r\n\r\nabc'
    for body in (field, half, b"", b"--b0--\r\n", b"no boundary at all"):
        response = server.post("/v1/predict", body, Content_Type=kind)
        assert (response.status, response.code) == (400, "bad_request"), body
    assert server.form("/v1/explain", {"a": noise_png(), "b": noise_png()}).code == "too_many_images"
    assert server.form("/v1/predict", dict.fromkeys(map(str, range(65)), b"")).code == "too_many_images"


def test_unknown_addresses_and_methods(server: Server) -> None:
    assert (server.get("/etc/passwd").status, server.get("/etc/passwd").code) == (404, "not_found")
    assert server.get("/page/../app.py").status == 404
    assert server.get("/page/%2e%2e/app.py").status == 404
    response = server.get("/v1/predict")
    assert (response.status, response.code, response.headers["allow"]) == (405, "method_not_allowed", "POST")
