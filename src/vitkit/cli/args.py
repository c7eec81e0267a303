"""Help that people can read: what an argument takes is one word, and a default is told only where it says something."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from tyro.conf import Positional, arg

from vitkit.errors import ConfigError

_POSITIONAL = get_args(Positional[str])[1]  # these are called by their field's name


@cache
def readable(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same dataclass, with the words of its help chosen for every field that does not choose them itself."""
    for name, kind in get_type_hints(command, include_extras=True).items():
        field = command.__dataclass_fields__[name]  # type: ignore[attr-defined]  # commands are dataclasses
        bare, *chosen = get_args(kind) if get_origin(kind) is Annotated else (kind,)
        several = get_origin(bare) is tuple
        if _POSITIONAL in chosen:
            metavar = f"{name.upper()} …" if several else None
        else:
            metavar = None if bare is bool else _word(name, bare)
        goes_without_saying = several or field.default is None or field.default is False
        hint = "" if goes_without_saying else None
        # tyro heeds what stands last: the field's own choice
        command.__annotations__[name] = Annotated[bare, arg(metavar=metavar, help_behavior_hint=hint), *chosen]
    return command


def parse_image_sizes(words: Sequence[str]) -> tuple[int, ...]:
    """Return the image sizes of `--sizes 224 288` or `--sizes 224,288`."""
    numbers = [number for word in words for number in word.split(",") if number]
    if not all(number.isdecimal() and int(number) for number in numbers):
        raise ConfigError(f"--sizes {' '.join(words)}: expected image sizes in pixels, such as 224,288")
    return tuple(int(number) for number in numbers)


def flag(name: str) -> str:
    """Return the flag of a field: --data-dir for data_dir."""
    return "--" + name.replace("_", "-")


def flags(command: Callable[..., Any]) -> list[str]:
    """Return the flags of a command, without its positional arguments."""
    found = []
    for name, kind in get_type_hints(command, include_extras=True).items():
        chosen = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
        if _POSITIONAL not in chosen:
            own = [each.name for each in chosen if getattr(each, "name", None)]
            found.append(flag(own[-1] if own else name))
    return found


def _word(name: str, kind: Any) -> str:
    """N for a number; else what the argument's name ends with: DIR of --data-dir."""
    kinds = [k for k in get_args(kind) or (kind,) if k not in (type(None), ...)]
    if all(k in (int, float) for k in kinds):
        return "N …" if get_origin(kind) is tuple else "N"
    if any(k in (int, float) for k in kinds):
        return "N [N]"
    return name.split("_")[-1].upper()
