import os
import sys
import threading

import pytest

from vitkit.errors import MissingExtraError
from vitkit.runtime import packages
from vitkit.runtime.packages import environment, require_package


def test_an_installed_package_is_imported() -> None:
    assert require_package("json.decoder", "reading").JSONDecoder is not None


def test_a_missing_package_is_named_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r"^ONNX export needs onnx, .*pip install 'vitkit\[export\]'$"):
        require_package("onnx", "ONNX export")


def test_the_environment_of_an_import_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []
    monkeypatch.setattr(packages, "import_module", lambda name: seen.append(os.environ.get("NNCF_CI")))
    monkeypatch.delenv("NNCF_CI", raising=False)
    require_package("nncf", "int8")
    assert seen == ["1"]
    assert "NNCF_CI" not in os.environ
    monkeypatch.setenv("NNCF_CI", "mine")
    require_package("nncf.quantization", "int8")
    assert os.environ["NNCF_CI"] == "mine"


def test_threads_that_set_variables_at_once_restore_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VITKIT_TEST", raising=False)
    start = threading.Barrier(4)

    def set_and_check(value: str) -> None:
        start.wait()
        for _ in range(100):
            with environment({"VITKIT_TEST": value}):
                wrong.append(value) if os.environ["VITKIT_TEST"] != value else None

    wrong: list[str] = []
    threads = [threading.Thread(target=set_and_check, args=(str(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert "VITKIT_TEST" not in os.environ
