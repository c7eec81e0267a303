"""Architecture: imports point one way and never in a circle, public names exist, every module has a test."""

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import vitkit

SOURCE = Path(vitkit.__file__).parent
TESTS = Path(__file__).parent
REFERENCE = TESTS.parent / "docs" / "reference" / "python.md"

# A package may import from itself and from those before it.
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

# Packages that import late, for start-up time, besides every `__init__`.
LATE = ("cli", "__main__")

# Modules without a test file of their own name, each with the reason.
TESTED_ELSEWHERE: dict[str, str] = {}


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imported_modules(node: ast.AST) -> set[str]:
    """Return vitkit's own modules that one import statement names."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names if alias.name in MODULES}
    if isinstance(node, ast.ImportFrom) and node.module in MODULES:
        names = {f"{node.module}.{alias.name}" for alias in node.names}
        submodules = names & MODULES.keys()
        return submodules if submodules == names else submodules | {node.module}
    return set()


def imports(path: Path) -> set[str]:
    """Return every vitkit module that a file imports, at any level."""
    return set().union(*(imported_modules(node) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))))


def imports_inside_functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return set().union(*(imported_modules(node) for function in functions for node in ast.walk(function)))


def imports_for_annotations(path: Path) -> set[str]:
    """Return the modules that a file imports for type checkers only."""
    blocks = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.If)]
    guarded = [node for node in blocks if ast.unparse(node.test) == "TYPE_CHECKING"]
    return set().union(*(imported_modules(node) for block in guarded for node in ast.walk(block)))


GRAPH = {name: imports(path) for name, path in MODULES.items()}


def package(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


@pytest.mark.parametrize("module", [name for name in MODULES if package(name) not in ("", "__main__")])
def test_imports_point_one_way(module: str) -> None:
    allowed = ORDER[: ORDER.index(package(module)) + 1]
    imported = GRAPH[module] - imports_for_annotations(MODULES[module])
    wrong = {name for name in imported if package(name) not in allowed}
    assert not wrong, f"{module} must not import {wrong}"


def test_no_file_imports_in_a_circle() -> None:
    remaining = {name: targets - {name} for name, targets in GRAPH.items()}
    while True:  # remove what imports nothing that remains, and what nothing that remains imports: circles are left
        imported = set().union(*remaining.values()) if remaining else set()
        removable = {n for n, targets in remaining.items() if not targets & remaining.keys() or n not in imported}
        if not removable:
            break
        remaining = {name: targets for name, targets in remaining.items() if name not in removable}
    assert not remaining, f"these modules import each other in a circle: {sorted(remaining)}"


def test_only_commands_and_packages_import_inside_functions() -> None:
    """A late import elsewhere would hide a circle."""
    exempt = [name for name, path in MODULES.items() if path.name == "__init__.py" or package(name) in LATE]
    late = {name: imports_inside_functions(path) for name, path in MODULES.items() if name not in exempt}
    assert not {name: found for name, found in late.items() if found}


def test_every_module_has_a_test_of_its_name() -> None:
    missing = {
        name
        for name, path in MODULES.items()
        if path.name not in ("__init__.py", "__main__.py")
        and not (TESTS / path.relative_to(SOURCE).parent / f"test_{path.name}").exists()
    }
    assert missing == set(TESTED_ELSEWHERE)


def test_every_public_name_is_importable_and_documented() -> None:
    reference = REFERENCE.read_text(encoding="utf-8")
    for name in vitkit.__all__:
        assert getattr(vitkit, name) is not None
        assert name == "__version__" or inspect.getdoc(getattr(vitkit, name))
        assert name == "__version__" or f"`{name}" in reference or f"vitkit.{name}" in reference, name
    assert dir(vitkit) == sorted(vitkit.__all__)


@pytest.mark.parametrize("name", ["vitkit", "vitkit.data"])
def test_the_imports_for_type_checkers_are_the_public_names(name: str) -> None:
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    (guarded,) = [n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    imports_ = [node for node in guarded.body if isinstance(node, ast.ImportFrom)]
    stubs = {(node.module, alias.asname) for node in imports_ for alias in node.names if alias.name != "*"}
    public = importlib.import_module(name)._PUBLIC.items()
    assert stubs == {(f"{name}.{module}", each) for module, names in public if module != "errors" for each in names}


def test_packages_are_there_after_import_vitkit() -> None:
    names = "vitkit.data.make_loader, vitkit.training.get_recipe, vitkit.evaluation.compare, vitkit.model.ViT"
    assert run(f"import vitkit; print(all([{names}]))") == "True"


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'creat_model'"):
        _ = vitkit.creat_model


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_train_evaluate_and_explain_stay_functions_after_their_packages_are_imported() -> None:
    code = "import inspect, vitkit, vitkit.training.trainer, vitkit.evaluation.metrics, vitkit.explanation.methods; "
    names = "[inspect.isfunction(f) for f in (vitkit.train, vitkit.evaluate, vitkit.explain)]"
    assert run(code + f"print({names})") == "[True, True, True]"


def test_importing_vitkit_imports_neither_torch_nor_anything_heavy() -> None:
    heavy = ("torch", "numpy", "matplotlib", "PIL", "rich", "sklearn")
    assert run(f"import sys, vitkit; print([m for m in {heavy} if m in sys.modules])") == "[]"


def test_reading_the_command_line_does_not_import_torch() -> None:
    assert run("import sys, vitkit.cli.main; print('torch' in sys.modules)") == "False"


def test_creating_a_model_imports_nothing_that_only_training_or_plotting_needs() -> None:
    code = "import sys, vitkit; vitkit.create_model('vit_nano_patch4_32'); "
    assert run(code + "print([m for m in ('matplotlib', 'PIL', 'rich', 'tyro') if m in sys.modules])") == "[]"
