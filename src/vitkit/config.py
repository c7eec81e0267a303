"""Typed settings: frozen dataclasses that are validated, stored as JSON and changed by `key.path=value`."""

import ast
import dataclasses
import difflib
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from vitkit.errors import ConfigError, UnknownNameError

T = TypeVar("T")


def check_types(settings: Any) -> None:
    """Raise if a field does not match its annotation."""
    for name, hint in get_type_hints(type(settings)).items():
        value = getattr(settings, name)
        if not _matches(value, hint):
            raise ConfigError(f"{name}={value!r}: expected {_describe(hint)}")


def to_dict(settings: Any) -> dict[str, Any]:
    return dataclasses.asdict(settings)


def from_dict(cls: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Build settings from a dictionary as parsed from JSON. Unknown keys are errors."""
    hints = get_type_hints(cls)
    for key in values:
        if key not in hints:
            raise UnknownNameError(f"{cls.__name__} key", f"{where}{key}", [f"{where}{k}" for k in hints])
    return cls(**{key: _from_json(hints[key], value, f"{where}{key}.") for key, value in values.items()})


def partial_of(cls: type) -> Any:
    """Declare a dictionary field with some settings of another dataclass, which validates them later."""
    return dataclasses.field(default_factory=dict, metadata={"partial_of": cls})


def override(settings: T, assignments: Sequence[str]) -> T:
    """Return settings changed by assignments such as 'optimizer.lr=3e-4'. Their order does not matter."""
    cls, values = type(settings), to_dict(settings)
    for path, text in map(_split, assignments):
        _assign(cls, values, path.split("."), text, path)
    return from_dict(cls, values)  # validates all of them together


def parse_partial(cls: type, assignments: Sequence[str]) -> dict[str, Any]:
    """Parse assignments such as 'norm_eps=1e-5' for a dataclass that is built, and validates them, later."""
    found: dict[str, Any] = {}
    for path, text in map(_split, assignments):
        found |= _parse_untyped(cls, path.split("."), text, path)
    return found


def _split(assignment: str) -> tuple[str, str]:
    path, equals, text = assignment.partition("=")
    if not equals:
        raise ConfigError(f"{assignment!r}: expected key.path=value")
    return path.strip(), text.strip()


def _assign(cls: Any, values: dict[str, Any], keys: Sequence[str], text: str, path: str, root: Any = None) -> None:
    """Set one field in `values`, the dictionary of a `cls`."""
    name, rest, root = keys[0], keys[1:], root or cls
    hints = get_type_hints(cls)
    if name not in hints:
        near = _nearest_paths(root, path)
        raise UnknownNameError("setting", path, hints, "" if near else f"settings: {', '.join(hints)}", near)
    hint = hints[name]
    if dataclasses.is_dataclass(hint):
        if not rest:
            raise ConfigError(f"{path}: {name} is a group; set one of {', '.join(_paths(hint, f'{path}.'))}")
        _assign(hint, values[name], rest, text, path, root)
    elif rest:
        if not isinstance(values[name], dict):
            raise ConfigError(f"{path}: {name} is a single value and has no {rest[0]!r}")
        table = next(f.metadata.get("partial_of") for f in dataclasses.fields(cls) if f.name == name)
        values[name] = values[name] | _parse_untyped(table, rest, text, path)
    else:
        values[name] = text if _matches(text, hint) else _from_json(hint, _literal(text), path)
        if not _matches(values[name], hint):
            raise ConfigError(f"{path}={text}: expected {_describe(hint)}")


def _paths(cls: Any, prefix: str = "") -> Iterator[str]:
    """Yield the path of every setting, also of nested groups."""
    hints = get_type_hints(cls)
    for field in dataclasses.fields(cls):
        group = field.metadata.get("partial_of", hints[field.name])
        path = f"{prefix}{field.name}"
        yield from _paths(group, f"{path}.") if dataclasses.is_dataclass(group) else [path]


def _nearest_paths(cls: Any, path: str) -> list[str]:
    """Return up to three settings, in any group, that are named like the last part of the path."""
    names = {each: each.rpartition(".")[2] for each in _paths(cls)}
    wanted = path.rpartition(".")[2]
    for near in ([wanted], wanted.split("_"), difflib.get_close_matches(wanted, set(names.values()), cutoff=0.7)):
        if found := [each for each, name in names.items() if name in near]:
            return found[:3]
    return []


def _parse_untyped(cls: type | None, keys: Sequence[str], text: str, path: str) -> dict[str, Any]:
    """Parse a setting of another dataclass. Its annotation decides whether "none" is a word or None."""
    name, rest = keys[0], keys[1:]
    if rest:
        raise ConfigError(f"{path}: {name} is a single value and has no {rest[0]!r}")
    hint = get_type_hints(cls).get(name) if cls else None
    return {name: text if hint is not None and _matches(text, hint) else _literal(text)}


def _literal(text: str) -> Any:
    """Parse a Python value as typed in a shell: 1e-3, true, none, (0.3, 1), or a word."""
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _from_json(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return from_dict(hint, value, where)  # type: ignore[arg-type]  # is_dataclass does not narrow to a class
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)  # so that 1 and 1.0 are the same setting, also in JSON
    if isinstance(value, list):  # JSON has no tuples
        return tuple(_from_json(None, v, where) for v in value)
    return value


def _matches(value: Any, hint: Any) -> bool:
    """Return whether the value matches the annotation. A bool is not an int; an int is a float."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return any(value == a and type(value) is type(a) for a in args)
    if origin in (Union, types.UnionType):
        return any(_matches(value, a) for a in args)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        inner = [args[0]] * len(value) if args[-1] is Ellipsis else args
        return len(value) == len(inner) and all(map(_matches, value, inner))
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
