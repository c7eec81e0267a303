"""Settings are frozen dataclasses: checked when made, to and from plain dictionaries, changed by `key.path=value`."""

import ast
import dataclasses
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from vitkit.errors import ConfigError, UnknownNameError

T = TypeVar("T")


def check_types(settings: Any) -> None:
    """Every field against its annotation, with an error that names the field, what it holds and what it may hold."""
    for name, hint in get_type_hints(type(settings)).items():
        value = getattr(settings, name)
        if not _fits(value, hint):
            raise ConfigError(f"{name}={value!r}: expected {_describe(hint)}")


def to_dict(settings: Any) -> dict[str, Any]:
    return dataclasses.asdict(settings)


def from_dict(cls: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Build from a plain dictionary, as JSON gives it; unknown keys are errors that suggest the nearest."""
    hints = get_type_hints(cls)
    for key in values:
        if key not in hints:
            raise UnknownNameError(f"{cls.__name__} key", f"{where}{key}", [f"{where}{k}" for k in hints])
    return cls(**{key: _from_plain(hints[key], value, f"{where}{key}.") for key, value in values.items()})


def partial_of(changed: type) -> Any:
    """A field for some settings of another dataclass, which will check them itself."""
    return dataclasses.field(default_factory=dict, metadata={"changes": changed})


def override(settings: T, assignments: Sequence[str]) -> T:
    """Apply 'optimizer.lr=3e-4' and the like, in any order; a value is read as the field's type says."""
    cls, values = type(settings), to_dict(settings)
    for path, text in map(_split, assignments):
        _assign(cls, values, path.split("."), text, path)
    return from_dict(cls, values)  # which checks them together


def parse_partial(changed: type, assignments: Sequence[str]) -> dict[str, Any]:
    """'norm_eps=1e-5' and the like for a dataclass that is not there yet, and will check them itself."""
    found: dict[str, Any] = {}
    for path, text in map(_split, assignments):
        found |= _free(changed, path.split("."), text, path)
    return found


def _split(assignment: str) -> tuple[str, str]:
    path, equals, text = assignment.partition("=")
    if not equals:
        raise ConfigError(f"--set {assignment}: expected key.path=value")
    return path.strip(), text.strip()


def _assign(cls: Any, values: dict[str, Any], keys: Sequence[str], text: str, path: str) -> None:
    """Into `values`, which are those of a `cls`."""
    name, rest = keys[0], keys[1:]
    hints = get_type_hints(cls)
    if name not in hints:
        prefix = path[: len(path) - len(".".join(keys))]
        raise UnknownNameError("setting", path, [prefix + h for h in hints])
    hint = hints[name]
    if dataclasses.is_dataclass(hint):
        if not rest:
            raise ConfigError(f"--set {path}: this is a group; set one of {', '.join(get_type_hints(hint))}")
        _assign(hint, values[name], rest, text, path)
    elif rest:
        if not isinstance(values[name], dict):
            raise ConfigError(f"--set {path}: {name} is a single value, it has no {rest[0]!r}")
        table = next(f.metadata.get("changes") for f in dataclasses.fields(cls) if f.name == name)
        values[name] = values[name] | _free(table, rest, text, path)
    else:
        values[name] = text if _fits(text, hint) else _from_plain(hint, _literal(text), path)
        if not _fits(values[name], hint):
            raise ConfigError(f"--set {path}={text}: expected {_describe(hint)}")


def _free(changed: type | None, keys: Sequence[str], text: str, path: str) -> dict[str, Any]:
    """A setting that another dataclass will check; its type says here whether "none" is a word or None."""
    name, rest = keys[0], keys[1:]
    if rest:
        raise ConfigError(f"--set {path}: {name} is a single value, it has no {rest[0]!r}")
    hint = get_type_hints(changed).get(name) if changed else None
    return {name: text if hint is not None and _fits(text, hint) else _literal(text)}


def _literal(text: str) -> Any:
    """A Python value as written in a shell: 1e-3, true, none, (0.3, 1), or a word."""
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _from_plain(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return from_dict(hint, value, where)  # type: ignore[arg-type]  # is_dataclass does not narrow to a class
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)  # so that 1 and 1.0 are one setting, also when written down
    if isinstance(value, list):  # JSON has no tuples
        return tuple(_from_plain(None, v, where) for v in value)
    return value


def _fits(value: Any, hint: Any) -> bool:
    """Does `value` match the annotation? bool is no int here; an int will do for a float."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return any(value == a and type(value) is type(a) for a in args)
    if origin in (Union, types.UnionType):
        return any(_fits(value, a) for a in args)
    if origin is tuple:
        inner = [args[0]] * len(value) if args[-1] is Ellipsis and isinstance(value, tuple) else args
        return (
            isinstance(value, tuple)
            and len(value) == len(inner)
            and all(_fits(v, h) for v, h in zip(value, inner, strict=True))
        )
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return hint is Any or isinstance(value, origin or hint)


def _describe(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(repr(v) for v in get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_describe(a) for a in get_args(hint))
    if get_origin(hint) is tuple:
        args = get_args(hint)
        return f"{'several' if args[-1] is Ellipsis else len(args)} values, each {_describe(args[0])}"
    words = {int: "a whole number", float: "a number", bool: "True or False", str: "a text", type(None): "None"}
    return words.get(hint, str(hint))
