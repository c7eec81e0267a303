"""dev.py chooses the build of torch: tested with package indexes on loopback that serve tiny stand-in wheels."""

import base64
import functools
import hashlib
import http.server
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the stand-in for nvidia-smi is a shell script")
ROOT = Path(__file__).parents[1]
TORCH = "2.13.0"


def write_wheel(folder: Path, name: str, version: str, requires: tuple[str, ...] = (), extra: str = "") -> Path:
    """Write a wheel that holds metadata and nothing else; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {r}" for r in requires)]
    files = {
        f"{info}/METADATA": "\n".join([*metadata, *([f"Provides-Extra: {extra}"] if extra else []), ""]),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = [f"{path},sha256={_digest(text)},{len(text)}" for path, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""])
    path = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in files.items():
            archive.writestr(inside, text)
    return path


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.requests.append(self.path)  # type: ignore[attr-defined]  # a list that `serve` adds
        super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[object]:
    """Return a function: wheels by project → address of an index that offers them, and the list of its requests."""
    servers = []

    def start(name: str, **projects: tuple[str, tuple[str, ...]]) -> tuple[str, list[str]]:
        folder = tmp_path / name
        folder.mkdir()
        for project, (version, requires) in projects.items():
            write_wheel(folder / project.replace("_", "-"), project.replace("_", "-"), version, requires)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
        server.requests = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/", server.requests  # type: ignore[attr-defined]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def empty_venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("venv") / ".venv"
    subprocess.run([sys.executable, "-m", "venv", path], check=True)
    return path


@pytest.fixture
def dev(tmp_path: Path, empty_venv: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """dev.py in a project of its own that needs torch, with an empty environment and no GPU."""
    project = tmp_path / "project"
    project.mkdir()
    shutil.copy(ROOT / "dev.py", project)
    shutil.copytree(empty_venv, project / ".venv", symlinks=True)
    (project / "constraints.txt").write_text(f"# pins\ntorch=={TORCH}\n", encoding="utf-8")
    built = write_wheel(tmp_path / "built", "vitkit", "0", ("torch",), "dev")
    (project / "backend.py").write_text(
        "import shutil\n"
        "def build_editable(folder, *_):\n"
        f"    return shutil.copy({str(built)!r}, folder) and {built.name!r}\n",
        encoding="utf-8",
    )
    (project / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
        "[project]\nname = 'vitkit'\nversion = '0'\ndependencies = ['torch']\n"
        "[project.optional-dependencies]\ndev = []\n",
        encoding="utf-8",
    )
    for name in [name for name in os.environ if name.startswith("PIP_")] + ["VITKIT_ALLOW_CUDA"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    spec = importlib.util.spec_from_file_location("dev", project / "dev.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "NVIDIA_GPUS", tmp_path / "gpus")
    monkeypatch.setattr(module.shutil, "which", lambda _: None)
    return module


def installed(dev: ModuleType) -> set[str]:
    """Return torch and the CUDA packages of the environment, with their versions."""
    listed = dev.pip(dev.VENV, "list", "--format", "freeze", read=True)
    return {line for line in listed.split() if line.startswith(("torch", "nvidia", "cuda"))}


CUDA = dict(torch=(TORCH, ("nvidia-cublas",)), nvidia_cublas=("13.0", ()))
CPU = dict(torch=(f"{TORCH}+cpu", ()))


def test_without_a_gpu_the_cpu_build_replaces_one_with_cuda_packages(dev, serve, monkeypatch, capsys) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", serve("default", **CUDA)[0])
    address, _ = serve("cpu", **CPU)
    monkeypatch.setattr(dev, "CPU_WHEELS", address)
    assert dev.main(["setup"]) == 0
    assert installed(dev) == {f"torch=={TORCH}+cpu"}
    assert f"no NVIDIA GPU found: installing torch=={TORCH}+cpu from {address}" in capsys.readouterr().out
    assert dev.main(["setup"]) == 0
    assert "installing" not in capsys.readouterr().out  # the second call finds everything in place


def test_a_cpu_index_that_cannot_be_reached_is_reported_and_the_configured_one_is_used(
    dev, serve, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", serve("default", **CUDA)[0])
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        monkeypatch.setattr(dev, "CPU_WHEELS", f"http://127.0.0.1:{closed.getsockname()[1]}/")
        assert dev.main(["setup"]) == 0
    assert installed(dev) == {f"torch=={TORCH}", "nvidia-cublas==13.0"}
    printed = capsys.readouterr().out
    assert "could not install it from there" in printed
    assert "continuing with the configured package index, which offers torch with 1 CUDA packages" in printed


def test_a_cpu_index_without_this_version_is_no_obstacle(dev, serve, monkeypatch, capsys) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", serve("default", **CUDA)[0])
    monkeypatch.setattr(dev, "CPU_WHEELS", serve("cpu", torch=("2.12.0+cpu", ()))[0])
    assert dev.main(["setup"]) == 0
    assert installed(dev) == {f"torch=={TORCH}", "nvidia-cublas==13.0"}
    assert "No matching distribution found" in capsys.readouterr().out


@pytest.mark.parametrize("offered", [f"{TORCH}+cpu", TORCH])
def test_a_cpu_build_that_the_configured_index_offers_is_used(dev, serve, monkeypatch, offered: str) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", serve("default", torch=(offered, ()))[0])
    address, requests = serve("cpu", **CPU)
    monkeypatch.setattr(dev, "CPU_WHEELS", address)
    assert dev.main(["setup"]) == 0
    assert installed(dev) == {f"torch=={offered}"}
    assert not requests


def test_an_installed_cpu_build_is_kept(dev, serve, monkeypatch, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "own", "torch", f"{TORCH}+own")
    dev.pip(dev.VENV, "install", "--quiet", "--no-index", str(wheel))
    monkeypatch.setenv("PIP_INDEX_URL", serve("default", **CUDA)[0])
    address, requests = serve("cpu", **CPU)
    monkeypatch.setattr(dev, "CPU_WHEELS", address)
    assert dev.main(["setup"]) == 0
    assert installed(dev) == {f"torch=={TORCH}+own"}
    assert not requests


@pytest.mark.parametrize("sign", ["driver", "nvidia-smi", "asked"])
def test_with_a_gpu_or_on_request_the_cuda_build_is_installed(
    dev, serve, monkeypatch, tmp_path: Path, sign: str
) -> None:
    if sign == "driver":
        (tmp_path / "gpus" / "0000:01:00.0").mkdir(parents=True)
    elif sign == "nvidia-smi":
        program = tmp_path / "nvidia-smi"
        program.write_text("#!/bin/sh\necho 'GPU 0: a card (UUID: GPU-0)'\n", encoding="utf-8")
        program.chmod(0o755)
        monkeypatch.setattr(dev.shutil, "which", lambda _: str(program))
    else:
        monkeypatch.setenv("VITKIT_ALLOW_CUDA", "1")
    monkeypatch.setenv("PIP_INDEX_URL", serve("default", **CUDA)[0])
    address, requests = serve("cpu", **CPU)
    monkeypatch.setattr(dev, "CPU_WHEELS", address)
    assert dev.main(["setup"]) == 0
    assert installed(dev) == {f"torch=={TORCH}", "nvidia-cublas==13.0"}
    assert not requests


def test_nvidia_smi_without_a_gpu_is_no_gpu(dev, monkeypatch, tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'No devices found.'\nexit 6\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(dev.shutil, "which", lambda _: str(program))
    assert not dev.has_nvidia_gpu()
    (tmp_path / "gpus").mkdir()  # the driver is loaded and drives nothing
    assert not dev.has_nvidia_gpu()
