import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .client import TOKEN, Server, running, save_model_dir


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    return save_model_dir(folder / "pets", seed=0), save_model_dir(folder / "others", seed=1, depth=2, patch_size=4)


@pytest.fixture(scope="session")
def server(folders: tuple[Path, Path]) -> Iterator[Server]:
    with running(*map(str, folders)) as found:
        yield found


@pytest.fixture(scope="session")
def strict(folders: tuple[Path, Path]) -> Iterator[Server]:
    """A server with minimal limits and a token."""
    words = [str(folders[0]), "--queue", "1", "--deadline", "0.0005", "--body", "0.1", "--pixels", "0.01"]
    with running(*words, environment={**os.environ, "VITKIT_TOKEN": TOKEN}) as found:
        yield found
