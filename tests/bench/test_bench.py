"""What is measured must be the same thing for all: same work, same turns."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch

from vitkit.bench import inference, training
from vitkit.bench.baselines import PEERS, Absent, build_peer
from vitkit.bench.inference import Job, named, prepare
from vitkit.bench.memory import peaks
from vitkit.bench.sweep import draw
from vitkit.bench.training import contestants
from vitkit.cli.main import main
from vitkit.errors import UnknownNameError, WorkError
from vitkit.model import ViTConfig, create_model
from vitkit.weights.reference_models import ReferenceUnavailable

TINY = ViTConfig.from_dict(
    dict(image_size=32, patch_size=8, width=32, depth=2, heads=2, head_width=16, mlp_width=64, num_classes=10)
)


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_has_our_weights_in_number(name: str) -> None:
    try:
        peer = build_peer(name, TINY)
    except Absent as error:
        pytest.skip(str(error))
    ours = sum(p.numel() for p in create_model(TINY).parameters())
    theirs = sum(p.numel() for p in peer.parameters())
    # vit-pytorch: norms around its patch embedding, no bias in qkv; the others exactly
    assert theirs == pytest.approx(ours, rel=0.06 if name == "vit-pytorch" else 0)
    assert peer.eval()(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_a_peer_that_cannot_be_imported_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(config: ViTConfig) -> torch.nn.Module:
        raise ReferenceUnavailable("timm is not installed")

    monkeypatch.setitem(PEERS, "timm", ("timm", gone))
    rows, missing = training(TINY, batch=2, against=["timm", "tutorial"], rounds=1, memory=False)
    assert [row.name for row in rows] == contestants(["tutorial"])
    asked = [name for name in contestants(["timm"]) if name.startswith("timm ")]
    assert missing == dict.fromkeys(asked, "timm is not installed: pip install timm")


def test_an_unknown_peer_is_an_error_that_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="timm"):
        inference(create_model(TINY), against=["tim"])


def test_a_model_no_peer_has_is_not_compared_with_another_one() -> None:
    with pytest.raises(Absent, match="plain ViT"):
        build_peer("timm", TINY.replace(position="rotary"))
    with pytest.raises(Absent, match="no registers"):
        build_peer("tutorial", TINY.replace(registers=2))
    with pytest.raises(Absent, match="three channels"):
        build_peer("torchvision", TINY.replace(in_channels=1))


def test_who_cannot_be_prepared_is_named_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    room = sys.modules["vitkit.bench.inference"]  # the function of that name hides it
    original = room.prepare

    def no_compiler(name: str, job: object) -> object:
        if name == "vitkit compiled":
            raise WorkError("the model cannot be compiled here: use --engine eager")
        return original(name, job)

    monkeypatch.setattr(room, "prepare", no_compiler)
    rows, missing = inference(create_model(TINY), batch=1, against=[], rounds=1, memory=False)
    assert [row.name for row in rows] == ["vitkit auto", "vitkit eager"]
    assert "cannot be compiled" in missing["vitkit compiled"]


def test_rows_say_what_was_done() -> None:
    rows, missing = training(TINY, batch=4, against=["tutorial"], rounds=2, memory=False)
    ours, theirs = rows[0], rows[-1]
    assert not missing
    assert ours.ratio == 1
    assert ours.images_per_s == pytest.approx(4e3 / ours.ms)
    assert theirs.ratio == pytest.approx(theirs.images_per_s / ours.images_per_s)
    assert 0 < ours.peak_share < 1.5
    assert ours.p95_ms >= ours.ms


def test_memory_is_of_a_process_of_its_own() -> None:
    """A batch a thousand times as large must show."""
    small, large = (
        peaks(prepare, ["vitkit eager"], Job(named(create_model(TINY)), batch))["vitkit eager"] for batch in (1, 8000)
    )
    assert large > small + 50


def test_the_command_prints_rows_and_draws_how_cost_grows(tmp_path, capsys) -> None:
    words = ["bench", "vit_nano_patch4_32", "--train", "--against", "tutorial", "--rounds", "1", "--no-memory"]
    assert main([*words, "--batch", "1", "4", "--plot", str(tmp_path / "grows.svg"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {(r["batch"], r["name"]) for r in found["rows"]} >= {
        (b, f"{n} fp32") for b in (1, 4) for n in ("vitkit", "tutorial")
    }
    assert {"images_per_s", "ms", "ratio", "peak_share"} <= found["rows"][0].keys()
    assert found["machine"]["cores"] >= 1
    written = re.findall("<!-- (.+) -->", (tmp_path / "grows.svg").read_text())  # beside the outlines of each text
    assert {"images at a time", "images per second", "vitkit fp32", "tutorial fp32"} <= set(written)


@pytest.mark.parametrize(
    ("axis", "label"), [("batch", "images at a time"), ("image_size", "side of the image, pixels")]
)
def test_a_drawing_has_a_line_per_contestant_over_what_varies(axis: str, label: str, tmp_path: Path) -> None:
    speeds = {"a": [10.0, 80.0], "b": [7.0, 30.0]}
    rows = [
        {"batch": 4, "image_size": 32, axis: x, "name": name, "images_per_s": speed[i]}
        for i, x in enumerate((16, 64))
        for name, speed in speeds.items()
    ]
    (axes,) = draw(rows, tmp_path / "x.png").axes
    assert {str(line.get_label()): list(line.get_ydata()) for line in axes.lines} == speeds
    assert [list(line.get_xdata()) for line in axes.lines] == [[16, 64]] * 2
    assert (axes.get_xlabel(), axes.get_ylabel()) == (label, "images per second")
    assert [text.get_text() for text in axes.get_xticklabels()] == ["16", "64"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]
    assert len({line.get_linestyle() for line in axes.lines}) == 2, "told apart without colour"
    assert (tmp_path / "x.png").read_bytes()[:4] == b"\x89PNG"


def test_the_loader_is_timed_beside_pillow_and_the_step_it_feeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "vit_digits_patch2_8", "--load", "digits", "--rounds", "1", "--batch", "64", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert list(rows) == ["loader, 0 workers", "loader, 1 workers", "loader, 2 workers", "pillow", "training step"]
    assert rows["loader, 0 workers"]["images_per_s"] > rows["training step"]["images_per_s"]


def test_one_thing_is_measured_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "vit_digits_patch2_8", "--load", "digits", "--train"]) == 2
    assert "give one of them" in capsys.readouterr().err
