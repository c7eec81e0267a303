from collections.abc import Iterator
from pathlib import Path

import pytest

from .client import Server, running, save


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("models")
    return save(place / "pets", seed=0), save(place / "others", seed=1, depth=2, patch_size=4)


@pytest.fixture(scope="session")
def server(folders: tuple[Path, Path]) -> Iterator[Server]:
    with running(*map(str, folders)) as found:
        yield found
