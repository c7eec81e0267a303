"""Built-in data sets: found on disk in their official formats, or downloaded from their official sites.

Each is looked for in `--data-dir`, else $VITKIT_DATA, else the user's cache: as NAME.npz, as the unpacked official
files or as the official archive, in that folder or in a folder NAME below it.
"""

import codecs
import gzip
import io
import logging
import pickle
import tarfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitkit.data.dataset import ArrayImages, Dataset, Split
from vitkit.data.decode_pipeline import Progress
from vitkit.data.progress_bar import progress_bar
from vitkit.data.readers.npz import check_arrays, read_npz
from vitkit.data.split import from_arrays, stratified
from vitkit.errors import DataError, MissingExtraError
from vitkit.runtime.cache_dir import data_folder

CHUNK = 2**18  # bytes
TIMEOUT = 30.0  # seconds without a byte

Files = Mapping[str, bytes]
Arrays = dict[str, tuple[np.ndarray, np.ndarray]]  # split → (images, labels)


@dataclass(frozen=True)
class RemoteFile:
    name: str
    sha256: str
    sites: tuple[str, ...]  # addresses of folders that hold it, the official one first


@dataclass(frozen=True)
class ArchiveFormat:
    """One official format of a data set: files in a folder or an archive, and how to parse them."""

    folder: str  # that the archive unpacks to
    archive: str | None
    files: tuple[str, ...]
    parse: Callable[[Files], tuple[Arrays, list[str] | None]]


@dataclass(frozen=True)
class BuiltinDataset:
    class_names: tuple[str, ...] | None
    formats: tuple[ArchiveFormat, ...]
    remote_files: tuple[RemoteFile, ...]


def open_builtin(name: str, data_dir: str | Path | None = None) -> Dataset:
    if name == "digits":
        return digits()
    entry, base = OFFICIAL[name], data_folder(data_dir)
    found = _find(name, entry, base)
    if found is None:
        files = " and ".join(file.name for file in entry.remote_files)
        advice = f"offline: put {name}.npz or {files} into {base}, or pass --data-dir"
        for file in entry.remote_files:
            download(file, base / name, advice)
        found = _find(name, entry, base)
    if found is None:
        raise DataError(f"{base / name}: holds none of the official formats of {name}; remove its files")
    return found


def download(file: RemoteFile, folder: Path, advice: str) -> Path:
    """Return the path of the file in `folder`, downloaded if it is missing there; a partial file is never kept.

    `advice` ends the error message: what to place where by hand.
    """
    import pooch  # type: ignore[import-untyped]  # it has no annotations

    pooch.get_logger().setLevel(logging.WARNING)
    reasons = []
    for site in file.sites:
        url = f"{site.rstrip('/')}/{file.name}"
        with progress_bar(file.name, in_bytes=True) as progress:
            # Without the header, requests would decompress what a server declares as gzip.
            headers = {"Accept-Encoding": "identity"}
            get = pooch.HTTPDownloader(_PoochBar(progress), CHUNK, timeout=TIMEOUT, headers=headers)
            try:
                return Path(pooch.retrieve(url, f"sha256:{file.sha256}", file.name, folder, downloader=get))
            except (OSError, ValueError) as error:
                reasons.append(f"{url}: {_root_cause(error)}")
    raise DataError(f"cannot download {'; '.join(reasons)}; {advice}")


class _PoochBar:
    """A progress bar as pooch calls it."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.total, self.done = progress, 0, 0

    def update(self, count: int) -> None:
        self.done = min(self.done + count, self.total)
        self.progress(self.done, self.total)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        pass


def _root_cause(error: BaseException) -> str:
    """Return the message of the first error of a chain in one line, because later errors repeat it."""
    while error.__context__ is not None:
        error = error.__context__
    return " ".join(str(error).split()) or type(error).__name__


def _find(name: str, entry: BuiltinDataset, base: Path) -> Dataset | None:
    for folder in (base, base / name):
        if (folder / f"{name}.npz").is_file():
            return read_npz(folder / f"{name}.npz")
    for form in entry.formats:
        for folder in (base / form.folder, base / name / form.folder, base / name, base):
            if all(_locate(folder, file) for file in form.files):
                return _parse(name, entry, form, {f: _read(folder, f) for f in form.files}, str(folder))
        for archive in (base / name / form.archive, base / form.archive) if form.archive else ():
            if archive.is_file():
                return _parse(name, entry, form, _unpack(archive, form.files), str(archive))
    return None


def _parse(name: str, entry: BuiltinDataset, form: ArchiveFormat, files: Files, where: str) -> Dataset:
    try:
        arrays, class_names = form.parse(files)
        for split, (images, labels) in arrays.items():
            check_arrays(images, labels, split)
    except (ValueError, KeyError, TypeError, IndexError, EOFError, pickle.UnpicklingError) as error:
        raise DataError(
            f"{where}: not the official files of {name} ({error}); remove them to download them again"
        ) from error
    return from_arrays(name, arrays, class_names or entry.class_names, [f"read from {where}"])


def _locate(folder: Path, file: str) -> Path | None:
    """Return the path of the file, plain or gzipped, or None. Some copies of MNIST have a dot before idx."""
    names = (file, f"{file}.gz", file.replace("-idx", ".idx"), file.replace("-idx", ".idx") + ".gz")
    return next((folder / n for n in names if (folder / n).is_file()), None)


def _read(folder: Path, file: str) -> bytes:
    path = _locate(folder, file)
    assert path is not None  # checked by _find
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error}); remove it to download it again") from error


def _unpack(archive: Path, wanted: tuple[str, ...]) -> Files:
    """Return the wanted files of an archive, read in one pass and without writing anything."""
    try:
        with tarfile.open(archive) as tar:
            members = ((member, tar.extractfile(member)) for member in tar if member.isfile())
            files = {Path(m.name).name: f.read() for m, f in members if f and Path(m.name).name in wanted}
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise DataError(f"{archive}: cannot be unpacked ({error}); remove it to download it again") from error
    if missing := [w for w in wanted if w not in files]:
        raise DataError(f"{archive}: has no {missing[0]}; remove it to download it again")
    return files


# ── CIFAR


def _cifar_python(files: Files, train: tuple[str, ...], test: str, labels: bytes, meta: str, names: bytes) -> Any:
    def part(members: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
        batches = [unpickle(files[m]) for m in members]
        return _planes(np.concatenate([b[b"data"] for b in batches])), np.concatenate([b[labels] for b in batches])

    return {"train": part(train), "test": part((test,))}, [n.decode() for n in unpickle(files[meta])[names]]


def _cifar_binary(files: Files, train: tuple[str, ...], test: str, label_bytes: int, names: str) -> Any:
    def part(members: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
        rows = np.frombuffer(b"".join(files[m] for m in members), np.uint8).reshape(-1, label_bytes + 3072)
        return _planes(rows[:, label_bytes:]), rows[:, label_bytes - 1]  # the last of several labels is the finest

    return {"train": part(train), "test": part((test,))}, files[names].decode().split()


def _planes(rows: np.ndarray) -> np.ndarray:
    """Return (N, 32, 32, 3) images from (N, 3072) rows of red, green and blue planes."""
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _allowed() -> dict[tuple[str, str], Any]:
    """Return the functions that pickled arrays may call, under both names of NumPy's internal package."""
    rebuild = {p: np.zeros(0).__reduce_ex__(p)[0] for p in (2, 5)}
    numpy = {("multiarray", "_reconstruct"): rebuild[2], ("numeric", "_frombuffer"): rebuild[5]}
    inner = {(f"numpy.{core}.{m}", name): f for core in ("core", "_core") for (m, name), f in numpy.items()}
    outer = {("numpy", "ndarray"): np.ndarray, ("numpy", "dtype"): np.dtype, ("_codecs", "encode"): codecs.encode}
    return inner | outer


class _ArraysOnly(pickle.Unpickler):
    """An unpickler that calls only functions that make arrays and bytes; a pickle could name any function."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it calls {module}.{name}, which CIFAR does not contain")
        return _ALLOWED[module, name]


_ALLOWED = _allowed()


def unpickle(content: bytes) -> Any:
    return _ArraysOnly(io.BytesIO(content), encoding="bytes").load()


CIFAR_SITE = "https://www.cs.toronto.edu/~kriz"
_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))


def _cifar10() -> BuiltinDataset:
    binary = tuple(f"{b}.bin" for b in _BATCHES)
    return BuiltinDataset(
        ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        (
            ArchiveFormat("cifar-10-batches-bin", "cifar-10-binary.tar.gz",
                 (*binary, "test_batch.bin", "batches.meta.txt"),
                 lambda f: _cifar_binary(f, binary, "test_batch.bin", 1, "batches.meta.txt")),
            ArchiveFormat("cifar-10-batches-py", "cifar-10-python.tar.gz", (*_BATCHES, "test_batch", "batches.meta"),
                 lambda f: _cifar_python(f, _BATCHES, "test_batch", b"labels", "batches.meta", b"label_names")),
        ),
        (RemoteFile("cifar-10-binary.tar.gz", "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                (CIFAR_SITE,)),),
    )  # fmt: skip


def _cifar100() -> BuiltinDataset:
    return BuiltinDataset(
        None,
        (
            ArchiveFormat("cifar-100-binary", "cifar-100-binary.tar.gz",
                 ("train.bin", "test.bin", "fine_label_names.txt"),
                 lambda f: _cifar_binary(f, ("train.bin",), "test.bin", 2, "fine_label_names.txt")),
            ArchiveFormat("cifar-100-python", "cifar-100-python.tar.gz", ("train", "test", "meta"),
                 lambda f: _cifar_python(f, ("train",), "test", b"fine_labels", "meta", b"fine_label_names")),
        ),
        (RemoteFile("cifar-100-binary.tar.gz", "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
                (CIFAR_SITE,)),),
    )  # fmt: skip


# ── MNIST and Fashion-MNIST


_IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def read_idx(content: bytes) -> np.ndarray:
    """Return the array of an IDX file: 0, 0, 8 for uint8, number of dimensions, big-endian sizes, then the values."""
    if content[:3] != b"\0\0\x08" or len(content) < 4:
        raise ValueError("not an IDX file of bytes")
    dimensions = content[3]
    shape = tuple(int(n) for n in np.frombuffer(content, ">u4", dimensions, 4))
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def _idx(files: Files) -> tuple[Arrays, None]:
    images, labels, test_images, test_labels = (read_idx(files[name]) for name in _IDX)
    return {"train": (images, labels), "test": (test_images, test_labels)}, None


def _mnist_like(
    folder: str, class_names: tuple[str, ...], sites: tuple[str, ...], sums: tuple[str, ...]
) -> BuiltinDataset:
    remote_files = tuple(RemoteFile(f"{file}.gz", sha256, sites) for file, sha256 in zip(_IDX, sums, strict=True))
    return BuiltinDataset(class_names, (ArchiveFormat(folder, None, _IDX, _idx),), remote_files)


# ── Digits


def digits() -> Dataset:
    """Return the 1,797 handwritten digits (8×8 pixels) of scikit-learn, which has no splits. These are fixed."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtraError("the digits data set", "scikit-learn", "demo") from error
    raw = load_digits()
    images = np.rint(raw.images * (255 / 16)).astype(np.uint8)  # grey levels are 0…16
    everything = Split(ArrayImages(images, "digits"), raw.target.astype(np.int64))
    test = stratified(everything, 0.2, seed=0)
    rest = everything.subset(np.flatnonzero(~test))
    val = np.zeros_like(test)
    val[np.flatnonzero(~test)] = stratified(rest, 0.25, seed=0)
    masks = {"train": ~test & ~val, "val": val, "test": test}
    note = "split into " + ", ".join(f"{name} {mask.sum():,}" for name, mask in masks.items()) + " (fixed, stratified)"
    parts = {name: (images[mask], everything.labels[mask]) for name, mask in masks.items()}
    return from_arrays("digits", parts, [str(i) for i in range(10)], [note])


OFFICIAL = {
    "cifar10": _cifar10(),
    "cifar100": _cifar100(),
    "mnist": _mnist_like(
        "MNIST/raw",
        tuple("0123456789"),
        ("https://yann.lecun.com/exdb/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist"),
        (
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
    "fashion_mnist": _mnist_like(
        "FashionMNIST/raw",
        ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",),
        (
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    ),
}

BUILTIN = ("digits", *OFFICIAL)
