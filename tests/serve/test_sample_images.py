"""Sample images are read once, and only if a browser can show them."""

from pathlib import Path

import pytest

from vitkit.data.preprocess import Preprocess
from vitkit.errors import DataError
from vitkit.serve.sample_images import MAX_SAMPLES, content_type, load_samples

from .client import Server, noise_png


def test_a_folder_is_read_up_to_the_limit_without_broken_files(tmp_path: Path) -> None:
    for i in range(MAX_SAMPLES + 3):
        (tmp_path / f"{i:02}.png").write_bytes(noise_png(seed=i))
    (tmp_path / "00.png").write_bytes(b"text")
    found = load_samples(str(tmp_path), [])
    assert list(found) == [f"{i:02}" for i in range(1, MAX_SAMPLES + 1)]
    assert {content_type(content) for content in found.values()} == {"image/png"}


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no images"):
        load_samples(str(tmp_path), [])


def test_a_digits_model_gets_digits_and_others_get_photographs() -> None:
    digits = load_samples(None, [Preprocess(size=(8, 8), channels=1, mean=(0.5,), std=(0.5,))])
    assert [name[0].isdigit() for name in digits] == [True] * 6
    assert "grace_hopper" in load_samples(None, [Preprocess(size=(32, 32))])


def test_listed_samples_can_be_fetched(server: Server) -> None:
    listed = server.get("/v1/samples").json()["samples"]
    assert server.get(listed[0]["address"]).headers["content-type"] == "image/jpeg"
    assert server.get(f"/v1/samples/{len(listed)}").code == "not_found"
