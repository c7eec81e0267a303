"""Arguments of the commands: placeholders and defaults in their help, and values that fail with a plain message."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field, make_dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from tyro.conf import Positional, arg
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from vitkit.errors import ConfigError

_POSITIONAL = get_args(Positional[str])[1]
_EXPECTED = {int: "a whole number", float: "a number"}

# Arguments that several commands declare alike
LabelOption = Annotated[str, arg(help="The column of the class in a CSV or parquet file.")]
DataDirOption = Annotated[Path | None, arg(help="The folder of named data sets. Default: $VITKIT_DATA.")]

registry = ConstructorRegistry()


@registry.primitive_rule
def _number_or_choice(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Parse int, float, Literal and their unions with None, with errors that say what was expected."""
    kinds = _members(info.type)
    choices = {str(choice): choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)}
    numbers = [kind for kind in kinds if kind in _EXPECTED]
    if not kinds or any(get_origin(kind) is not Literal for kind in kinds if kind not in _EXPECTED):
        return None
    expected = [f"one of {', '.join(choices)}" if len(choices) > 1 else each for each in choices][:1]
    expected += [_EXPECTED[kind] for kind in numbers]

    def parse(words: list[str]) -> Any:
        (text,) = words
        if text in choices:
            return choices[text]
        if text == "None" and type(None) in get_args(info.type):
            return None
        for kind in numbers:
            with suppress(ValueError):
                return kind(text)
        raise ValueError(f"expected {' or '.join(expected)}, not {text!r}")

    return PrimitiveConstructorSpec(
        nargs=1, metavar="|".join([*choices, *("N" for _ in numbers)]), instance_from_str=parse,
        is_instance=lambda value: True, str_from_instance=lambda value: [str(value)],
    )  # fmt: skip


def with_help(command: type) -> type:
    """Return a subclass of the command whose help has placeholders for values and shows only informative defaults.

    A field's own `tyro.conf.arg` comes last and takes precedence.
    """
    specs = []
    for name, (kind, annotations) in _annotations(command).items():
        own = command.__dataclass_fields__[name]  # type: ignore[attr-defined]  # commands are dataclasses
        several = get_origin(kind) is tuple
        positional = f"{name.upper()} …" if several else None
        metavar = positional if _POSITIONAL in annotations else _placeholder(name, kind)
        hint = "" if several or own.default is None or own.default is False else None
        hinted: Any = Annotated[kind, arg(metavar=metavar, help_behavior_hint=hint), *annotations]
        specs.append((name, hinted, field(default=own.default, default_factory=own.default_factory)))
    doc = {"__doc__": command.__doc__}
    return make_dataclass(command.__name__, specs, bases=(command,), namespace=doc, frozen=True)


def flags(command: type) -> list[str]:
    """Return the flags of a command, without its positional arguments."""
    options = {name: added for name, (_, added) in _annotations(command).items() if _POSITIONAL not in added}
    return [flag(next((a.name for a in added if getattr(a, "name", None)), name)) for name, added in options.items()]


def flag(name: str) -> str:
    """Return the flag of a field: --data-dir for data_dir."""
    return "--" + name.replace("_", "-")


def repeat_set(words: Sequence[str]) -> list[str]:
    """Give each assignment its own --set, so that `--set a=1 b=2` means `--set a=1 --set b=2`."""
    result: list[str] = []
    for word in words:
        again = result[-2:-1] == ["--set"] and re.match(r"[a-z_][\w.]*=", word)
        result += ["--set", word] if again else [word]
    return result


def parse_image_sizes(words: Sequence[str]) -> tuple[int, ...]:
    """Return the image sizes of `--sizes 224 288` or `--sizes 224,288`."""
    numbers = [number for word in words for number in word.split(",") if number]
    if not all(number.isdecimal() and int(number) for number in numbers):
        raise ConfigError(f"--sizes {' '.join(words)}: expected image sizes in pixels, such as 224,288")
    return tuple(int(number) for number in numbers)


def _annotations(command: type) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Return the type of each field, and what `Annotated` adds to it."""
    hints = get_type_hints(command, include_extras=True).items()
    return {n: (get_args(h)[0], get_args(h)[1:]) if get_origin(h) is Annotated else (h, ()) for n, h in hints}


def _members(kind: Any) -> list[Any]:
    """Return the members of a union without None, or the type itself."""
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return [member for member in members if member is not type(None)]


def _placeholder(name: str, kind: Any) -> str | None:
    """Return N … for several numbers, the last word of the name for texts, or None to use that of the type."""
    kinds = _members(kind)
    if kinds == [tuple[int, ...]] or kinds == [tuple[float, ...]]:
        return "N …"
    if kinds == [int, tuple[int, int]]:
        return "N [N]"
    texts = (str, Path, tuple[str, ...])
    return name.split("_")[-1].upper() if any(each in texts for each in kinds) else None
