from importlib import metadata

import vitkit
from vitkit.version import __version__


def test_the_package_and_its_metadata_have_one_version() -> None:
    assert vitkit.__version__ == __version__ == metadata.version("vitkit")
