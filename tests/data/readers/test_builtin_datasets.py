"""Built-in data sets in their official formats, from a folder or downloaded (from a local server)."""

import dataclasses
import functools
import gzip
import hashlib
import http.server
import io
import pickle
import struct
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from vitkit.data.dataset import ArrayImages
from vitkit.data.open import open_data
from vitkit.data.readers import builtin_datasets
from vitkit.data.readers.builtin_datasets import OFFICIAL, RemoteFile, download, open_builtin, unpickle
from vitkit.errors import DataError

CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def pixels(dataset, split: str) -> np.ndarray:  # type: ignore[no-untyped-def]
    images = dataset.splits[split].images
    assert isinstance(images, ArrayImages)
    return images.pixels


def random_images(count: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


# ── Digits


def test_digits_are_scaled_to_bytes_and_have_a_fixed_split() -> None:
    sklearn = pytest.importorskip("sklearn.datasets", reason="pip install 'vitkit[demo]'")
    dataset = open_data("digits")
    assert {k: len(v) for k, v in dataset.splits.items()} == {"train": 1079, "val": 359, "test": 359}
    assert dataset.class_names == [str(i) for i in range(10)]
    levels = sorted(np.unique(pixels(dataset, "train")).tolist())
    assert levels == [round(i * 255 / 16) for i in range(17)]
    assert "train 1,079, val 359, test 359 (fixed" in dataset.notes[0]
    assert open_data("digits", seed=5).fingerprint == dataset.fingerprint
    for split in dataset.splits.values():
        share = np.bincount(split.labels) / len(split)
        assert 0.09 < share.min() < share.max() < 0.11
    everything = np.concatenate([pixels(dataset, s) for s in dataset.splits])
    raw = np.rint(sklearn.load_digits().images * 255 / 16).astype(np.uint8)
    assert sorted(map(bytes, everything)) == sorted(map(bytes, raw))


# ── CIFAR


def cifar_files(kind: str, form: str) -> tuple[dict[str, bytes], np.ndarray, np.ndarray]:
    """The official files of a small made-up CIFAR: five batches of 6, or train of 30; test of 8."""
    images, classes = random_images(38, 32, 32, 3), 10 if kind == "10" else 100
    labels = np.random.default_rng(1).integers(0, classes, 38)
    planes = images.transpose(0, 3, 1, 2).reshape(38, 3072)
    batches = {f"data_batch_{i + 1}": slice(6 * i, 6 * i + 6) for i in range(5)} | {"test_batch": slice(30, 38)}
    parts = batches if kind == "10" else {"train": slice(0, 30), "test": slice(30, 38)}
    names = CIFAR10 if kind == "10" else [f"fine_{i}" for i in range(100)]
    if form == "python":
        key = b"labels" if kind == "10" else b"fine_labels"
        files = {n: pickle.dumps({b"data": planes[s], key: labels[s].tolist()}, protocol=2) for n, s in parts.items()}
        meta, meta_key = ("batches.meta", b"label_names") if kind == "10" else ("meta", b"fine_label_names")
        files[meta] = pickle.dumps({meta_key: [n.encode() for n in names]}, protocol=2)
    else:
        coarse = np.full((38, 1), 7, np.uint8) if kind == "100" else np.empty((38, 0), np.uint8)
        rows = np.hstack([coarse, labels[:, None].astype(np.uint8), planes])
        files = {f"{n}.bin": rows[s].tobytes() for n, s in parts.items()}
        files["batches.meta.txt" if kind == "10" else "fine_label_names.txt"] = ("\n".join(names) + "\n\n").encode()
    return files, images, labels


FOLDERS = {
    ("10", "python"): "cifar-10-batches-py", ("10", "binary"): "cifar-10-batches-bin",
    ("100", "python"): "cifar-100-python", ("100", "binary"): "cifar-100-binary",
}  # fmt: skip


def write_tar(path: Path, folder: str, files: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


@pytest.mark.parametrize("packing", ["folder", "archive", "below"])
@pytest.mark.parametrize(("kind", "form"), FOLDERS)
def test_cifar_in_its_official_formats(tmp_path: Path, kind: str, form: str, packing: str) -> None:
    files, images, labels = cifar_files(kind, form)
    folder = FOLDERS[kind, form]
    if packing == "archive":
        write_tar(tmp_path / f"cifar-{kind}-{form}.tar.gz", folder, files)
    else:
        place = tmp_path / folder if packing == "folder" else tmp_path / f"cifar{kind}" / folder
        place.mkdir(parents=True)
        for name, content in files.items():
            (place / name).write_bytes(content)
    dataset = open_data(f"cifar{kind}", data_dir=tmp_path, val_fraction=0)
    assert np.array_equal(pixels(dataset, "train"), images[:30])
    assert np.array_equal(pixels(dataset, "test"), images[30:])
    assert np.array_equal(dataset.splits["train"].labels, labels[:30])
    assert np.array_equal(dataset.splits["test"].labels, labels[30:])
    assert dataset.class_names[:2] == (["airplane", "automobile"] if kind == "10" else ["fine_0", "fine_1"])
    assert len(dataset.class_names) == int(kind)
    assert dataset.notes[0].startswith(f"read from {tmp_path}")


def test_npz_by_name_and_by_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = random_images(20, 32, 32, 3)
    np.savez(tmp_path / "cifar10.npz", train_images=images, train_labels=np.arange(20) % 10, class_names=CIFAR10)
    monkeypatch.setenv("VITKIT_DATA", str(tmp_path))
    dataset = open_data("cifar10", val_fraction=0)
    assert np.array_equal(pixels(dataset, "train"), images)
    assert dataset.class_names == CIFAR10


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_are_unpickled_in_every_protocol(protocol: int) -> None:
    values = {b"data": random_images(2, 5), b"labels": [1, 2]}
    result = unpickle(pickle.dumps(values, protocol))
    assert np.array_equal(result[b"data"], values[b"data"])
    assert result[b"labels"] == [1, 2]


def test_a_pickle_that_calls_something_is_refused(tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "touched",)  # type: ignore[return-value]

    with pytest.raises(pickle.UnpicklingError, match="it calls"):
        unpickle(pickle.dumps(Harm()))
    assert not (tmp_path / "touched").exists()
    for attack in (b"cos\nsystem\n(S'true'\ntR.", b"cnumpy\nload\n(S'x'\ntR.", b"c__builtin__\neval\n(S'1'\ntR."):
        with pytest.raises(pickle.UnpicklingError):
            unpickle(attack)
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name, content in cifar_files("10", "python")[0].items():
        (folder / name).write_bytes(content)
    (folder / "data_batch_2").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(DataError, match=r"not the official files of cifar10 \(it calls (os|posix).system"):
        open_data("cifar10", data_dir=tmp_path)


def test_broken_archives_and_files_are_named(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "cifar-10-binary.tar.gz", "cifar-10-batches-bin", cifar_files("10", "binary")[0])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz: cannot be unpacked .*remove it"):
        open_builtin("cifar10", tmp_path)
    write_tar(path, "cifar-10-batches-bin", {"test_batch.bin": b""})
    with pytest.raises(DataError, match=r"has no data_batch_1\.bin"):
        open_builtin("cifar10", tmp_path)


# ── MNIST


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def mnist_files() -> dict[str, bytes]:
    train, test = random_images(30, 28, 28), random_images(10, 28, 28, seed=1)
    labels = np.arange(30, dtype=np.uint8) % 10
    arrays = (train, labels, test, labels[:10])
    return {name: idx(array) for name, array in zip(builtin_datasets._IDX, arrays, strict=True)}


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
@pytest.mark.parametrize("packing", ["plain", "gz", "dotted", "raw"])
def test_idx_files(tmp_path: Path, name: str, packing: str) -> None:
    folder = tmp_path / (OFFICIAL[name].formats[0].folder if packing == "raw" else name)
    folder.mkdir(parents=True)
    for file, content in mnist_files().items():
        if packing == "gz":
            (folder / f"{file}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / (file.replace("-idx", ".idx") if packing == "dotted" else file)).write_bytes(content)
    dataset = open_data(name, data_dir=tmp_path, val_fraction=0)
    assert np.array_equal(pixels(dataset, "train"), random_images(30, 28, 28))
    assert np.array_equal(pixels(dataset, "test"), random_images(10, 28, 28, seed=1))
    assert dataset.splits["train"].labels.tolist() == [*range(10)] * 3
    assert dataset.class_names[1] == {"mnist": "1", "fashion_mnist": "Trouser"}[name]


@pytest.mark.parametrize(
    "content", [b"", b"\0\0\x08", b"\0\0\x0d\x01\0\0\0\1\0", b"\0\0\x08\x03\0\0\0\x05" + bytes(8), b"hello world"]
)
def test_broken_idx_files_are_named(tmp_path: Path, content: bytes) -> None:
    for file, good in mnist_files().items():
        (tmp_path / file).write_bytes(good)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(DataError, match="not the official files of mnist"):
        open_builtin("mnist", tmp_path)


# ── Downloads


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        if not self.path.startswith("/cut/"):
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"x" * 400)  # then the connection is closed
        return None


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """(address, the folder it serves)"""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    root = tmp_path / "served"
    root.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(root))) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}", root
        httpd.shutdown()
        thread.join()


def test_a_file_is_downloaded_once(server: tuple[str, Path], tmp_path: Path) -> None:
    address, root = server
    (root / "a.bin").write_bytes(b"content")
    remote = RemoteFile("a.bin", hashlib.sha256(b"content").hexdigest(), (address,))
    path = download(remote, tmp_path / "new" / "data", "advice")
    assert path.read_bytes() == b"content"
    (root / "a.bin").unlink()
    assert download(remote, tmp_path / "new" / "data", "advice") == path


def test_the_next_site_is_tried(server: tuple[str, Path], tmp_path: Path) -> None:
    address, root = server
    (root / "a.bin").write_bytes(b"content")
    remote = RemoteFile("a.bin", hashlib.sha256(b"content").hexdigest(), (f"{address}/none", f"{address}/cut", address))
    assert download(remote, tmp_path, "advice").read_bytes() == b"content"


@pytest.mark.parametrize(
    ("site", "reason"),
    [
        ("", "but got ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"),
        ("/cut", "IncompleteRead(400 bytes read, 600 more expected)"),
        ("/none", "404 Client Error: File not found"),
    ],
)
def test_a_wrong_download_is_not_kept(server: tuple[str, Path], tmp_path: Path, site: str, reason: str) -> None:
    address, root = server
    (root / "a.bin").write_bytes(b"content")
    with pytest.raises(DataError) as caught:
        download(RemoteFile("a.bin", "0" * 64, (address + site,)), tmp_path / "data", "place a.bin in data")
    message = str(caught.value)
    assert reason in message
    assert message.startswith(f"cannot download {address}{site}/a.bin: ")
    assert message.endswith("; place a.bin in data")
    assert list((tmp_path / "data").iterdir()) == []


def test_the_error_without_network_says_what_to_place_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    nowhere = tuple(dataclasses.replace(r, sites=("http://127.0.0.1:9",)) for r in OFFICIAL["cifar10"].remote_files)
    monkeypatch.setitem(OFFICIAL, "cifar10", dataclasses.replace(OFFICIAL["cifar10"], remote_files=nowhere))
    with pytest.raises(DataError) as caught:
        open_data("cifar10", data_dir=tmp_path)
    message = str(caught.value)
    assert "\n" not in message
    assert "refused" in message
    assert message.endswith(f"; offline: put cifar10.npz or cifar-10-binary.tar.gz into {tmp_path}, or pass --data-dir")


def test_a_built_in_data_set_is_downloaded_then_read(
    server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, root = server
    remotes = []
    for file, content in mnist_files().items():
        packed = gzip.compress(content)
        (root / f"{file}.gz").write_bytes(packed)
        remotes.append(RemoteFile(f"{file}.gz", hashlib.sha256(packed).hexdigest(), (address,)))
    monkeypatch.setitem(OFFICIAL, "mnist", dataclasses.replace(OFFICIAL["mnist"], remote_files=tuple(remotes)))
    monkeypatch.setenv("VITKIT_DATA", str(tmp_path / "cache"))
    first = open_data("mnist")
    assert [len(first.splits[s]) for s in ("train", "val", "test")] == [20, 10, 10]
    for file in root.iterdir():
        file.unlink()
    assert open_data("mnist").fingerprint == first.fingerprint


def test_every_official_file_has_a_site_and_a_checksum() -> None:
    for entry in OFFICIAL.values():
        for remote in entry.remote_files:
            assert len(bytes.fromhex(remote.sha256)) == 32
            assert all(site.startswith("http") for site in remote.sites)
