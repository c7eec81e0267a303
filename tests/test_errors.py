"""The error tree, its exit codes, and suggestions of the nearest name."""

import pickle
import re

import pytest

from vitkit import errors
from vitkit.errors import CorruptImageError, Interrupted, UnknownNameError, VitkitError, first_line, is_out_of_memory


def test_the_tree_at_the_top_of_the_module_is_the_class_hierarchy() -> None:
    drawn = re.findall(r"^[│├└─ ]*([A-Z]\w+)  ", errors.__doc__ or "", flags=re.MULTILINE)
    defined = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, VitkitError)]
    assert sorted(drawn) == sorted(c.__name__ for c in defined)
    depth = {name: len(line) - len(line.lstrip("│├└─ ")) for name, line in zip(drawn, _lines(drawn), strict=True)}
    for c in defined:
        parents = [base.__name__ for base in c.__mro__[1:] if base.__name__ in depth]
        assert depth[c.__name__] == 4 * len(parents), c


def _lines(names: list[str]) -> list[str]:
    lines = (errors.__doc__ or "").splitlines()
    return [next(line for line in lines if re.search(rf"\b{name}  ", line)) for name in names]


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("mdoels", ["models", "train"], "unknown command 'mdoels'; did you mean 'models'?"),
        ("xyz", ["models", "train"], "unknown command 'xyz'; known: models, train"),
        ("xyz", [f"name{i}" for i in range(13)], "unknown command 'xyz'"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(name: str, known: list[str], expected: str) -> None:
    assert str(UnknownNameError("command", name, known)) == expected


def test_given_suggestions_are_used() -> None:
    error = UnknownNameError("setting", "lr", ["optimizer"], near=["optimizer.lr"])
    assert str(error) == "unknown setting 'lr'; did you mean 'optimizer.lr'?"


def test_an_interrupt_exits_with_the_code_of_its_signal() -> None:
    assert (Interrupted(2, "run").exit_code, Interrupted(15, "run").exit_code) == (130, 143)


def test_a_corrupt_image_survives_the_way_out_of_a_worker_process() -> None:
    error = pickle.loads(pickle.dumps(CorruptImageError("a.jpg", "is truncated")))
    assert (str(error), error.name, error.reason) == ("a.jpg: is truncated", "a.jpg", "is truncated")


def test_errors_of_other_libraries_are_shortened_and_recognised() -> None:
    assert first_line(RuntimeError("\n  one\ntwo")) == "one"
    assert first_line(RuntimeError()) == "RuntimeError"
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: 1 TB"))
    assert not is_out_of_memory(RuntimeError("a bug"))
