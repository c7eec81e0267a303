from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from vitkit import config
from vitkit.errors import ConfigError, UnknownNameError
from vitkit.training import get_recipe


@dataclass(frozen=True)
class Inner:
    lr: float = 1e-3
    shape: Literal["cosine", "linear"] = "cosine"
    pair: tuple[float, float] = (0.9, 0.99)


@dataclass(frozen=True)
class Model:
    position: Literal["learned", "none"] = "learned"
    scale: float | None = 1.0
    size: tuple[int, int] = (8, 8)


@dataclass(frozen=True)
class Outer:
    epochs: int = 10
    name: str = ""
    limit: float | None = None
    stem: tuple[int, ...] = ()
    table: dict[str, Any] = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)
    model: dict[str, Any] = config.partial_of(Model)  # noqa: RUF009  # returns a dataclass field

    def __post_init__(self) -> None:
        config.check_types(self)
        config.check_types(self.inner)


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("epochs=3", Outer(epochs=3)),
        ("inner.lr=2e-4", Outer(inner=Inner(lr=2e-4))),
        ("inner.lr=1", Outer(inner=Inner(lr=1))),
        ("inner.shape=linear", Outer(inner=Inner(shape="linear"))),
        ("inner.pair=(0.8, 0.95)", Outer(inner=Inner(pair=(0.8, 0.95)))),
        ("stem=[8, 16]", Outer(stem=(8, 16))),
        ("limit=none", Outer()),
        ("limit=0.5", Outer(limit=0.5)),
        ("name=12", Outer(name="12")),
        ("table.drop_path=0.1", Outer(table={"drop_path": 0.1})),
        ("model.position=none", Outer(model={"position": "none"})),
        ("model.scale=none", Outer(model={"scale": None})),
        ("model.size=16", Outer(model={"size": 16})),
    ],
)
def test_an_assignment_is_parsed_by_the_type_of_its_field(assignment: str, expected: Outer) -> None:
    assert config.override(Outer(), [assignment]) == expected


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("epochs", "expected key.path=value"),
        ("epochs=three", "epochs=three: expected a whole number"),
        ("epochs=1.5", "expected a whole number"),
        ("inner=3", "inner is a group; set one of inner.lr, inner.shape, inner.pair"),
        ("inner.shape=cosin", "expected one of 'cosine', 'linear'"),
        ("inner.pair=(1, 2, 3)", "expected 2 values"),
        ("epochs.x=1", "is a single value"),
    ],
)
def test_a_wrong_assignment_says_what_was_expected(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(").replace(".", r"\.")):
        config.override(Outer(), [assignment])


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("epoch", "'epochs'"),
        ("inner.lrr", "'inner.lr'"),
        ("iner.lr", "'inner.lr'"),
        ("lr", "'inner.lr'"),
        ("position", "'model.position'"),
        ("size_limit", "'limit' or 'model.size'"),
        ("xyz", "settings: epochs, name"),
    ],
)
def test_an_unknown_key_suggests_the_nearest(path: str, nearest: str) -> None:
    with pytest.raises(UnknownNameError, match=nearest):
        config.override(Outer(), [f"{path}=1"])


def test_settings_that_depend_on_each_other_can_be_set_in_any_order() -> None:
    finetune = get_recipe("finetune")  # keeps the last weights, which excludes early stopping
    changes = ["budget.early_stop=3", "budget.choose=best"]
    assert finetune.override(changes) == finetune.override(changes[::-1])
    with pytest.raises(ConfigError, match=r"early_stop needs budget\.choose=best"):
        finetune.override(changes[:1])


def test_settings_survive_a_round_trip_through_json() -> None:
    import json

    made = Outer(epochs=3, stem=(1, 2), inner=Inner(pair=(0.1, 0.2)), table={"a": 1})
    assert config.from_dict(Outer, json.loads(json.dumps(config.to_dict(made)))) == made


def test_unknown_keys_are_errors_in_nested_dictionaries_too() -> None:
    with pytest.raises(UnknownNameError, match=r"'inner\.lr'"):
        config.from_dict(Outer, {"inner": {"lrr": 1.0}})


def test_a_bool_is_not_a_number() -> None:
    with pytest.raises(ConfigError, match="epochs=True"):
        Outer(epochs=True)


def test_an_integer_in_a_float_field_becomes_a_float() -> None:
    changed = config.override(Inner(), ["lr=1"])
    assert isinstance(changed.lr, float)
    assert isinstance(config.from_dict(Inner, {"lr": 1}).lr, float)


def test_assignments_are_parsed_for_a_dataclass_that_is_built_later() -> None:
    assert config.parse_partial(Model, ["position=none", "scale=none", "other=2"]) == {
        "position": "none", "scale": None, "other": 2,
    }  # fmt: skip
    with pytest.raises(ConfigError, match="single value"):
        config.parse_partial(Model, ["position.x=1"])
