"""Query parameters: one table, used to parse requests and to write the OpenAPI document."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import QueryParams

from vitkit.errors import suggest
from vitkit.explanation import DEFAULT_METHOD, METHODS
from vitkit.serve.errors import APIError


@dataclass(frozen=True)
class Parameter:
    name: str
    about: str
    default: Any = None
    minimum: int | None = None  # if given, the parameter is an integer
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

    def parse(self, text: str) -> Any:
        if self.minimum is not None:
            if not re.fullmatch(r"-?[0-9]{1,10}", text) or not self.minimum <= int(text) <= self.maximum:
                raise self._error(text, f"a whole number from {self.minimum} to {self.maximum}")
            return int(text)
        if self.choices and text not in self.choices:
            raise self._error(text, f"one of {', '.join(self.choices)}")
        if self.pattern and not re.fullmatch(self.pattern, text):
            raise self._error(text, self.about)
        return text

    def _error(self, text: str, expected: str) -> APIError:
        return APIError("bad_parameter", f"{self.name}={text[:50]!r}: expected {expected}")


METHOD_NAMES = tuple(name for name in METHODS if name != "random")

MODEL = Parameter("model", "name of the model; default: the first one served")
TOP = Parameter("top", "number of classes to return", default=5, minimum=1, maximum=100_000)
QUERY = Parameter(
    "query", "the query token: class, mean, or a patch as ROW,COL", pattern=r"class|mean|[0-9]{1,4},[0-9]{1,4}"
)

PREDICT = (MODEL, TOP)
ATTENTION = (MODEL, TOP, QUERY)
EXPLAIN = (
    MODEL,
    Parameter("method", "explanation method", default=DEFAULT_METHOD, choices=METHOD_NAMES),
    Parameter("layer", "layer of attention and rollout; default: the last, -1", minimum=-1000, maximum=999),
    Parameter("head", "attention head; default: the mean of all heads", minimum=-1000, maximum=999),
    QUERY,
    Parameter("class", "name or number of the class to explain; default: the predicted class"),
    Parameter("format", "json: one number per patch; png: the map over the image", default="json",
              choices=("json", "png")),
    Parameter("opacity", "opacity of the map over the image, in percent", default=60, minimum=0, maximum=100),
)  # fmt: skip


def parse(query: QueryParams, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Return the value of every parameter by name; parameters that are not given have their default."""
    known = {p.name: p for p in parameters}
    given: dict[str, Any] = {}
    for name, text in query.multi_items():
        if name not in known:
            raise APIError("bad_parameter", f"unknown parameter {name[:50]!r}{suggest(name[:50], known)}")
        if name in given:
            raise APIError("bad_parameter", f"{name} is given twice")
        given[name] = known[name].parse(text)
    return {p.name: p.default for p in parameters} | given
