"""The payloads contain the attention and explanations that Python computes."""

import io
import json
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import vitkit
from vitkit.explanation import attention_maps, explain
from vitkit.inference import Predictor
from vitkit.serve import explain_api
from vitkit.serve.model_registry import ServedModel

from .client import Server, noise_png, running, save_model_dir


def unpack(content: bytes) -> tuple[dict[str, Any], np.ndarray]:
    (length,) = struct.unpack_from("<I", content)
    assert length % 4 == 0
    head = json.loads(content[4 : 4 + length])
    patches = head["grid"][0] * head["grid"][1]
    rows = patches + 1 if head["rows"] == "all" else 1
    shape = (head["layers"], head["heads"], rows)
    scale = np.frombuffer(content, "<f4", int(np.prod(shape)), 4 + length).reshape(shape)
    code = np.frombuffer(content, np.uint8, offset=4 + length + 4 * scale.size).reshape(*shape, patches)
    return head, scale[..., None] * code / 255


def images(folder: Path, content: bytes) -> tuple[vitkit.ViT, torch.Tensor]:
    model = vitkit.load_model(folder)
    return model, model.info.preprocess.normalize(model.info.preprocess.batch([content]))


@pytest.mark.parametrize("which", [0, 1])
def test_all_layers_heads_and_patches_are_sent_at_once(server: Server, folders: tuple[Path, Path], which: int) -> None:
    content = noise_png(50, 70, seed=4)
    head, found = unpack(server.post(f"/v1/attention?model={folders[which].name}", content).content)
    model, batch = images(folders[which], content)
    with torch.no_grad():
        weights = model.attention(batch)[:, 0].numpy()
        summary = attention_maps(model, batch)[:, 0].flatten(-2).numpy()
    prefix = model.config.prefix
    assert found.shape[2] == found.shape[3] + 1
    np.testing.assert_allclose(found[:, :, 0], summary, atol=1.01 / 510)
    np.testing.assert_allclose(found[:, :, 1:], weights[:, :, prefix:, prefix:], atol=1.01 / 510)
    assert head["size"] == [50, 70]
    assert head["region"] == pytest.approx(model.info.preprocess.crop_box((50, 70)), abs=1e-3)
    expected = Predictor(folders[which])(content)
    assert [p["label"] for p in head["predictions"]] == [p.label for p in expected]


def test_a_single_row_can_be_requested(server: Server, folders: tuple[Path, Path]) -> None:
    content = noise_png(seed=4)
    head, found = unpack(server.post("/v1/attention?query=1,2", content).content)
    model, batch = images(folders[0], content)
    expected = attention_maps(model, batch, query=(1, 2))[:, 0].flatten(-2).numpy()
    assert head["rows"] == 1
    np.testing.assert_allclose(found[:, :, 0], expected, atol=1.01 / 510)


def test_a_matrix_that_is_too_large_is_sent_by_rows(folders: tuple[Path, Path]) -> None:
    served = ServedModel("pets", Predictor(folders[0]), "")
    model = served.predictor.model
    assert model is not None
    size = 3 * 2 * 17 * (16 + 4)  # layers × heads × rows × (codes and a scale)
    assert explain_api.all_rows_fit(served, model, size)
    assert not explain_api.all_rows_fit(served, model, size - 1)
    pixels = np.zeros((32, 32, 3), np.uint8)
    header, scale, code = explain_api.attention(served, model, pixels, None, all_rows=False)
    assert code.shape == (3, 2, 1, 16)
    assert unpack(explain_api.pack(header, scale, code))[0]["rows"] == 1


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("method=attention&layer=0&head=1&query=2,3", dict(layer=0, head=1, query=(2, 3))),
        ("method=rollout", {}),
        ("method=gradient&class=emu", dict(target="emu")),
        ("method=attribution&class=1", dict(target=1)),
        ("method=occlusion", {}),
    ],
)
def test_explanations_equal_those_of_python(
    server: Server, folders: tuple[Path, Path], query: str, options: dict[str, Any]
) -> None:
    content = noise_png(seed=6)
    found = server.post(f"/v1/explain?{query}", content).json()
    model, batch = images(folders[0], content)
    expected = explain(model, batch, found["method"], **options)
    np.testing.assert_allclose(found["map"], expected.maps[0], atol=1e-5)
    assert found["class"]["label"] == expected.labels[0]
    assert found["class"]["score"] == pytest.approx(expected.scores[0], abs=1e-5)


def test_a_map_is_drawn_over_the_image(server: Server, folders: tuple[Path, Path]) -> None:
    content = noise_png(seed=6)
    drawn = {}
    for opacity in (0, 80):
        response = server.post(f"/v1/explain?format=png&opacity={opacity}", content)
        assert response.headers["content-type"] == "image/png"
        drawn[opacity] = np.asarray(Image.open(io.BytesIO(response.content)))
    seen = Predictor(folders[0]).preprocess.array(content)
    assert drawn[0].shape == (448, 448, 3)
    assert np.abs(drawn[0][7::14, 7::14].astype(int) - seen).mean() < 40  # the image itself, enlarged
    assert np.abs(drawn[0].astype(int) - drawn[80]).mean() > 20


def test_gradient_maps_that_need_too_much_memory_are_refused_before_they_are_computed(tmp_path: Path) -> None:
    """2,305 tokens in 60 layers need more than 2 GiB."""
    folder = save_model_dir(tmp_path / "huge", seed=0, depth=60, image_size=192, patch_size=4)
    with running(str(folder)) as server:
        for method in ("gradient", "attribution"):
            response = server.post(f"/v1/explain?method={method}", noise_png())
            assert (response.status, response.code) == (422, "cannot_explain")
            assert re.search(
                rf"{method} maps of huge need about [89]\.\d GiB, more than the limit of 2\.0 GiB: use attention",
                response.json()["error"]["message"],
            )
        assert server.post("/v1/explain?method=attention", noise_png()).status == 200
