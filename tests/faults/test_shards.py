"""Damaged shards, failing stores and killed runs: damage is named and counted, and resumed runs are exact."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("fsspec", reason="pip install 'vitkit[shards]'")

from vitkit.cli.main import main
from vitkit.data.dataset import Dataset, ReadFailure
from vitkit.data.open import open_data
from vitkit.data.shards import storage
from vitkit.data.shards.writer import pack
from vitkit.errors import DataError, WorkError

from .store import Store, serving

SETTINGS = {
    "model": "vit_nano_patch4_32",
    "config.depth": 1,
    "batch": 16,
    "budget.epochs": 1,
    "augment.crop": "resized",
}
SETTINGS |= {"machine.precision": "fp32", "machine.compile": "off", "budget.validate_every": 1}
SHARD = 30_000  # bytes, about 20 pictures


def settings(**more: object) -> list[str]:
    return [word for key, value in {**SETTINGS, **more}.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 pictures in two classes, 100 of them for training."""
    root = tmp_path_factory.mktemp("photos")
    for i in range(120):
        place = root / ("train" if i < 100 else "val") / "ab"[i % 2]
        place.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 256, (20, 20, 3), np.uint8)
        Image.fromarray(pixels).save(place / f"{i:03}.png")
    return root


@pytest.fixture(scope="session")
def whole(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("packed") / "shards"
    pack(open_data(photos), out, shard_size=SHARD)
    assert len(list(out.glob("train-*.tar"))) > 4
    return out


@pytest.fixture
def shards(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "shards"))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def alter(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[1000] ^= 4  # inside of the first image; the size stays the same
    path.write_bytes(content)


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "truncated": (truncate, "its shard ends"),
    "missing": (Path.unlink, "its shard is missing"),
    "altered": (alter, "have changed since it was packed"),
}


@pytest.mark.parametrize("crop", ["resized", "pad"])  # decoded at every step, and held in memory
@pytest.mark.parametrize("damage", DAMAGE)
def test_images_of_a_damaged_shard_are_left_out_up_to_the_limit(
    damage: str, crop: str, shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work, message = DAMAGE[damage]
    work(shards / "train-00002.tar")
    words = ["train", str(shards), "--out", str(tmp_path / "run"), *settings(**{"augment.crop": crop})]
    held = next(
        s
        for s in json.loads((shards / "index.json").read_text(encoding="utf-8"))["shards"]
        if s["file"] == "train-00002.tar"
    )
    limit = 0.0 if damage == "altered" else 0.01
    assert main([*words, "--set", f"corrupt_limit={limit}"]) == 2
    err = capsys.readouterr().err
    assert "of 120 images cannot be read, more than the limit" in err
    assert "train-00002.tar" in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()

    assert main([*words, "--set", "corrupt_limit=0.3"]) == 0
    err = capsys.readouterr().err
    left_out = [line for line in err.splitlines() if line.startswith("left out: ")]
    assert all("train-00002.tar" in line and message in line for line in left_out)
    lost = {"altered": 1, "missing": held["images"]}.get(damage)
    assert len(left_out) == lost if lost else 0 < len(left_out) < held["images"]
    images = json.loads((tmp_path / "run" / "model" / "config.json").read_text(encoding="utf-8"))["data"]["images"]
    assert images["train"] == 100 - len(left_out)


def test_a_run_is_not_resumed_after_a_shard_was_lost(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The remaining samples would come in another order."""
    words = ["train", str(shards), "--out", str(tmp_path / "run"), *settings(corrupt_limit=0.3)]
    assert main(words) == 0
    (shards / "train-00001.tar").unlink()
    capsys.readouterr()
    assert main([*words, "--resume"]) == 2
    assert "has changed since" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_damaged_tars_without_an_index_are_named(damage: str, shards: Path) -> None:
    counts = {s["file"]: s["images"] for s in json.loads((shards / "index.json").read_text(encoding="utf-8"))["shards"]}
    images = counts["train-00002.tar"]
    rest = sum(counts[f"train-0000{i}.tar"] for i in range(5)) - images
    (shards / "index.json").unlink()
    DAMAGE[damage][0](shards / "train-00002.tar")
    pattern = f"{shards}/train-{{00000..00004}}.tar"
    with pytest.raises(DataError, match=r"images are in missing or broken shards, more than.*train-00002\.tar"):
        open_data(pattern)
    data = open_data(pattern, corrupt_limit=0.5)
    notes = [note for note in data.notes if "train-00002.tar" in note]
    assert len(notes) == 1
    assert ("is missing" if damage == "missing" else "the rest of it is left out") in notes[0]
    held = sum(map(len, data.splits.values()))
    assert held == rest if damage == "missing" else rest < held < rest + images


BAD_INDEX: dict[str, Callable[[Path], object]] = {
    "no JSON": lambda folder: (folder / "index.json").write_text("{", encoding="utf-8"),
    "another version": lambda folder: (folder / "index.json").write_text('{"vitkit_shards": 99}', encoding="utf-8"),
    "no list": lambda folder: (folder / "index.json").write_text('{"vitkit_shards": 1}', encoding="utf-8"),
    "an empty table": lambda folder: (folder / "samples.npz").write_bytes(b""),
    "no table": lambda folder: (folder / "samples.npz").unlink(),
}


@pytest.mark.parametrize("kind", BAD_INDEX)
def test_the_error_of_a_bad_index_is_one_line(kind: str, shards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    BAD_INDEX[kind](shards)
    assert main(["inspect", str(shards)]) == 2
    err = capsys.readouterr().err
    assert len(err.strip().splitlines()) == 1
    assert str(shards) in err


# ── Object stores


@pytest.fixture(params=["loop", "http"])
def protocol(request: pytest.FixtureRequest) -> str:
    if request.param == "http":
        pytest.importorskip("aiohttp", reason="pip install 'vitkit[shards]'")
    return str(request.param)


@pytest.fixture
def store(shards: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(storage, "PAUSES", (0.01, 0.02, 0.04, 0.08))
    with serving(shards.parent) as running:
        yield running


def same(a: Dataset, b: Dataset) -> bool:
    return a.fingerprint == b.fingerprint and all(
        a.splits[s].images.read_many(np.arange(len(a.splits[s])))
        == [b.splits[s].images[i] for i in range(len(b.splits[s]))]
        for s in b.splits
    )


def test_a_store_gives_the_same_data_as_the_disk(store: Store, protocol: str, shards: Path) -> None:
    here, there = open_data(shards), open_data(store.url(protocol, "shards"))
    assert not any(".tar" in line and "Range" not in line and "GET" in line and "bytes" not in line
                   for line in store.requests)  # fmt: skip  # no shard was read completely
    store.sent = 0
    assert same(there, here)
    assert store.sent < 1.6 * sum(p.stat().st_size for p in shards.glob("*.tar"))


def test_patterns_and_tars_without_an_index_are_read_from_a_store(store: Store, protocol: str, shards: Path) -> None:
    here = open_data(shards)
    assert same(open_data(store.url(protocol, "shards/*.tar")), here)
    (shards / "index.json").unlink()
    numbered = open_data(store.url(protocol, "shards/*.tar"))
    assert [len(s) for s in numbered.splits.values()] == [100, 20]
    read = numbered.splits["val"].images.read_many(np.arange(20))
    assert read == [here.splits["val"].images[i] for i in range(20)]


@pytest.mark.parametrize("broken", [False, True])
def test_requests_to_a_failing_store_are_retried(store: Store, protocol: str, broken: bool, shards: Path) -> None:
    data = open_data(store.url(protocol, "shards"))
    store.fail, store.broken = 3, broken
    images = data.splits["val"].images
    assert images.read_many(np.arange(20)) == [open_data(shards).splits["val"].images[i] for i in range(20)]
    assert store.fail == 0


def test_a_store_that_keeps_failing_ends_the_run(store: Store, protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = open_data(store.url(protocol, "shards"))
    store.fail, store.requests = 10_000, []
    with pytest.raises(WorkError, match=r"val-00000\.tar: cannot be read after 5 attempts .*--resume"):
        data.splits["val"].images.read_many(np.arange(1))
    assert len(store.requests) >= 5


def test_a_store_that_is_too_slow_ends_the_run(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aiohttp", reason="pip install 'vitkit[shards]'")
    monkeypatch.setattr(storage, "TIMEOUT", 0.3)
    data = open_data(store.url("http", "shards"))
    store.wait = 2.0
    began = time.monotonic()
    with pytest.raises(WorkError, match="after 5 attempts"):
        data.splits["val"].images.read_many(np.arange(4))
    assert time.monotonic() - began < 10
    store.wait = 0.1  # slow, but within the limit
    assert len(data.splits["val"].images.read_many(np.arange(4))) == 4


def test_a_missing_file_of_a_store_is_not_retried(store: Store, protocol: str, shards: Path) -> None:
    data = open_data(store.url(protocol, "shards"))
    (shards / "val-00000.tar").unlink()
    store.requests = []
    (lost,) = data.splits["val"].images.read_many(np.arange(1))
    assert isinstance(lost, ReadFailure)
    assert "val-00000.tar" in str(lost)
    assert "its shard is missing" in str(lost)
    assert len(store.requests) <= 2


# ── Killed in the middle of a shard

DRIVER = """
import sys
from vitkit.data.shards import reader
reader.TAR_WINDOW, reader.TAR_CHUNK = 40_000, 8_000
from vitkit.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def command(data: Path, out: Path, workers: int, *more: str) -> list[str]:
    saves = {"keep.every_minutes": 0, "machine.workers": workers, "budget.epochs": 3, "config.dropout": 0.1}
    return [sys.executable, "-c", DRIVER, "train", str(data), "--out", str(out), "--json", *settings(**saves), *more]


def test_a_run_killed_within_a_shard_resumes_with_the_next_sample(shards: Path, tmp_path: Path) -> None:
    """After SIGKILL and with another number of workers, the weights are byte-identical to an uninterrupted run."""
    uninterrupted = subprocess.run(command(shards, tmp_path / "a", 0), capture_output=True, text=True)
    assert uninterrupted.returncode == 0, uninterrupted.stderr
    process = subprocess.Popen(
        command(shards, tmp_path / "b", 1), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    kept = tmp_path / "b" / "checkpoints"
    while process.poll() is None and not any(int(p.stem.split("-")[1]) >= 3 for p in kept.glob("step-*.json")):
        time.sleep(0.005)
    assert process.poll() is None, "it ended before it could be killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "b" / "result.json").exists()
    resumed = subprocess.run(command(shards, tmp_path / "b", 0, "--resume"), capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["weights_sha256"] == json.loads(uninterrupted.stdout)["weights_sha256"]


def test_s3_gives_the_same_data_as_the_disk(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real S3 client reads from a server of the S3 protocol."""
    s3fs = pytest.importorskip("s3fs", reason="pip install 'vitkit[s3]'")
    moto = pytest.importorskip("moto.server", reason="pip install 'moto[server]'")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        _, port = server.get_host_and_port()
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
        for key, value in {**keys, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}.items():
            monkeypatch.setenv(key, value)
        bucket = s3fs.S3FileSystem(skip_instance_cache=True)
        bucket.mkdir("photos")
        bucket.put(f"{shards}/", "photos/packed/", recursive=True)
        here = open_data(shards)
        assert same(open_data("s3://photos/packed"), here)
        assert same(open_data("s3://photos/packed/*.tar"), here)
        bucket.rm("photos/packed/train-00001.tar")
        s3fs.S3FileSystem.clear_instance_cache()
        left = open_data("s3://photos/packed")
        assert any("train-00001.tar is missing" in note for note in left.notes)
        assert left.fingerprint != here.fingerprint
    finally:
        server.stop()
