"""The house keeps its order: imports point one way, public names exist, importing stays cheap."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import vitkit

SOURCE = Path(vitkit.__file__).parent

# A room may import from its own and from those before it.
ORDER = [
    "version",
    "errors",
    "config",
    "atomic",
    "runtime",
    "model",
    "data",
    "weights",
    "evaluation",
    "export",
    "inference",
    "explanation",
    "features",
    "training",
    "bench",
    "plan",
    "report",
    "serve",
    "cli",
]


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= (
                {f"{node.module}.{alias.name}" for alias in node.names} if node.module == "vitkit" else {node.module}
            )
    return {name for name in found if name.startswith("vitkit.")}


FILES = [p for p in sorted(SOURCE.rglob("*.py")) if p.parent != SOURCE or p.stem in ORDER]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    here = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    allowed = ORDER[: ORDER.index(here) + 1]
    wrong = {name for name in imports(path) if room(name) not in allowed}
    assert not wrong, f"{here} must not import {wrong}"


def test_every_room_has_its_place() -> None:
    rooms = {p.name for p in SOURCE.iterdir() if p.is_dir() and (p / "__init__.py").exists()}
    assert rooms <= set(ORDER), f"give {rooms - set(ORDER)} a place in the order"


def test_public_names_are_what_all_says() -> None:
    for name in vitkit.__all__:
        assert getattr(vitkit, name) is not None
    assert set(vitkit.__all__) == {"__version__", *vitkit._HOMES}


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'creat_model'"):
        _ = vitkit.creat_model


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_vitkit_imports_neither_torch_nor_anything_heavy() -> None:
    heavy = ("torch", "numpy", "matplotlib", "PIL", "rich", "sklearn")
    assert run(f"import sys, vitkit; print([m for m in {heavy} if m in sys.modules])") == "[]"


def test_reading_the_command_line_does_not_import_torch() -> None:
    assert run("import sys, vitkit.cli.main; print('torch' in sys.modules)") == "False"


def test_creating_a_model_imports_nothing_that_only_training_or_plotting_needs() -> None:
    code = "import sys, vitkit; vitkit.create_model('vit_nano_patch4_32'); "
    assert run(code + "print([m for m in ('matplotlib', 'PIL', 'rich', 'tyro') if m in sys.modules])") == "[]"
