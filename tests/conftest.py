"""What every test stands on: shapes are enforced, threads are few, property tests are repeatable in length."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

from tests.browser import chromium, missing

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"


def modules_with_shapes() -> list[str]:
    """Those that state shapes. Others are left alone: the hook would also forbid a config to coerce its fields."""
    files = [path for path in (SRC / "vitkit").rglob("*.py") if "from jaxtyping import" in path.read_text()]
    return [".".join(path.relative_to(SRC).with_suffix("").parts) for path in files]


install_import_hook(modules_with_shapes(), "beartype.beartype")  # has to come before the first import of vitkit

torch.set_num_threads(1)

_cache = tempfile.TemporaryDirectory(prefix="vitkit-cache-")  # of this session, also in the processes that it starts
os.environ["VITKIT_CACHE"] = _cache.name

# By default the same examples every time: a change passes or fails by what it changes. A thorough run seeks new ones.
settings.register_profile("default", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=500)
settings.load_profile("thorough" if os.environ.get("VITKIT_THOROUGH") == "1" else "default")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Data and weights that are too large for the repository."""
    path = Path(os.environ.get("VITKIT_SHARED", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"no shared data at {path}: set VITKIT_SHARED to its folder")
    return path


@pytest.fixture(scope="session")
def started_browser() -> Iterator[Any]:
    if reason := missing():
        pytest.skip(reason)
    with chromium() as driver:
        yield driver


@pytest.fixture
def browser(started_browser: Any) -> Any:
    """Started once, with nothing left in its log by the test before."""
    started_browser.get("about:blank")
    started_browser.get_log("browser")
    return started_browser
