"""What may stand in the query of a request: one table, by which requests are read and OpenAPI is written."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import QueryParams

from vitkit.errors import suggest
from vitkit.explanation import DEFAULT, METHODS
from vitkit.serve.errors import Refusal


@dataclass(frozen=True)
class Parameter:
    name: str
    about: str
    default: Any = None
    minimum: int | None = None  # given: the parameter is a whole number
    maximum: int = 2**31 - 1
    choices: tuple[str, ...] = ()
    pattern: str = ""

    def schema(self) -> dict[str, Any]:
        kind: dict[str, Any] = {"type": "string"}
        if self.minimum is not None:
            kind = {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}
        if self.choices:
            kind["enum"] = list(self.choices)
        if self.pattern:
            kind["pattern"] = f"^(?:{self.pattern})$"
        return kind if self.default is None else {**kind, "default": self.default}

    def read(self, text: str) -> Any:
        if self.minimum is not None:
            if not re.fullmatch(r"-?[0-9]{1,10}", text) or not self.minimum <= int(text) <= self.maximum:
                raise self._wrong(text, f"a whole number from {self.minimum} to {self.maximum}")
            return int(text)
        if self.choices and text not in self.choices:
            raise self._wrong(text, f"one of {', '.join(self.choices)}")
        if self.pattern and not re.fullmatch(self.pattern, text):
            raise self._wrong(text, self.about)
        return text

    def _wrong(self, text: str, expected: str) -> Refusal:
        return Refusal("bad_parameter", f"{self.name}={text[:50]!r}: expected {expected}")


METHOD_NAMES = tuple(name for name in METHODS if name != "random")

MODEL = Parameter("model", "name of the model; the first one served if left out")
TOP = Parameter("top", "how many classes", default=5, minimum=1, maximum=100_000)
QUERY = Parameter(
    "query", "whose attention: class, mean, or a patch as ROW,COL", pattern=r"class|mean|[0-9]{1,4},[0-9]{1,4}"
)

PREDICT = (MODEL, TOP)
ATTENTION = (MODEL, TOP, QUERY)
EXPLAIN = (
    MODEL,
    Parameter("method", "how the map is made", default=DEFAULT, choices=METHOD_NAMES),
    Parameter("layer", "of attention and rollout; the last by default, as is -1", minimum=-1000, maximum=999),
    Parameter("head", "of attention; the mean of all by default", minimum=-1000, maximum=999),
    QUERY,
    Parameter("class", "name or number of the class to explain; the predicted one by default"),
    Parameter("format", "numbers per patch, or the map over the image", default="json", choices=("json", "png")),
    Parameter("opacity", "of the map over the image, in percent", default=60, minimum=0, maximum=100),
)


def read(query: QueryParams, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Every parameter by name, with its default where it is not given."""
    known = {p.name: p for p in parameters}
    values = {p.name: p.default for p in parameters}
    seen = set()
    for name, text in query.multi_items():
        if name not in known:
            raise Refusal("bad_parameter", f"unknown parameter {name[:50]!r}{suggest(name[:50], known)}")
        if name in seen:
            raise Refusal("bad_parameter", f"{name} is given twice")
        seen.add(name)
        values[name] = known[name].read(text)
    return values
