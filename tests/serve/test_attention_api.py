"""What the page gets is what the model says."""

import io
import json
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
from vitkit.serve import attention_api as attention

from .client import Server, picture


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
def test_all_layers_heads_and_patches_come_at_once(server: Server, folders: tuple[Path, Path], which: int) -> None:
    content = picture(50, 70, seed=4)
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


def test_one_row_is_given_where_it_is_asked_for(server: Server, folders: tuple[Path, Path]) -> None:
    content = picture(seed=4)
    head, found = unpack(server.post("/v1/attention?query=1,2", content).content)
    model, batch = images(folders[0], content)
    expected = attention_maps(model, batch, query=(1, 2))[:, 0].flatten(-2).numpy()
    assert head["rows"] == 1
    np.testing.assert_allclose(found[:, :, 0], expected, atol=1.01 / 510)


def test_a_matrix_that_is_too_large_is_not_sent_whole(folders: tuple[Path, Path]) -> None:
    predictor = Predictor(folders[0])
    assert predictor.model is not None
    whole = 3 * 2 * 17 * (16 + 4)  # layers × heads × rows × (codes and a scale)
    assert attention.fits(predictor, predictor.model, whole)
    assert not attention.fits(predictor, predictor.model, whole - 1)
    pixels = np.zeros((32, 32, 3), np.uint8)
    found = attention.encode(predictor, predictor.model, pixels, None, whole=False)
    assert found["code"].shape == (3, 2, 1, 16)
    content = attention.pack(found["head"], found["scale"], found["code"])
    assert unpack(content)[0]["rows"] == 1


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
def test_explanations_are_those_of_python(
    server: Server, folders: tuple[Path, Path], query: str, options: dict[str, Any]
) -> None:
    content = picture(seed=6)
    found = server.post(f"/v1/explain?{query}", content).json()
    model, batch = images(folders[0], content)
    expected = explain(model, batch, found["method"], **options)
    np.testing.assert_allclose(found["map"], expected.maps[0], atol=1e-5)
    assert found["class"]["label"] == expected.labels[0]
    assert found["class"]["score"] == pytest.approx(expected.scores[0], abs=1e-5)


def test_a_map_as_a_picture(server: Server, folders: tuple[Path, Path]) -> None:
    content = picture(seed=6)
    drawn = {}
    for opacity in (0, 80):
        answer = server.post(f"/v1/explain?format=png&opacity={opacity}", content)
        assert answer.headers["content-type"] == "image/png"
        drawn[opacity] = np.asarray(Image.open(io.BytesIO(answer.content)))
    seen = Predictor(folders[0]).preprocess.array(content)
    assert drawn[0].shape == (448, 448, 3)
    assert np.abs(drawn[0][7::14, 7::14].astype(int) - seen).mean() < 40  # the picture itself, enlarged
    assert np.abs(drawn[0].astype(int) - drawn[80]).mean() > 20
