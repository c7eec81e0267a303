"""Query parameters are validated; errors name the parameter."""

import pytest
from starlette.datastructures import QueryParams

from vitkit.serve.errors import APIError
from vitkit.serve.query_parameters import EXPLAIN, PREDICT, parse

from .client import Server, noise_png


@pytest.mark.parametrize(
    "query",
    ["top=0", "top=x", "top=1&top=2", "tpo=1", "top=" + "9" * 40, "model=pets&method=rollout"],
)
def test_bad_parameters_are_named(server: Server, query: str) -> None:
    response = server.post(f"/v1/predict?{query}", noise_png())
    assert (response.status, response.code) == (400, "bad_parameter")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("method=attention&layer=3", 422), ("method=attention&query=9,9", 422), ("method=gradient&head=1", 422),
        ("class=unicorn", 400), ("class=3", 400), ("query=1,1,1", 400), ("method=random", 400), ("opacity=101", 400),
    ],
)  # fmt: skip
def test_unsupported_explanations_are_errors_of_the_client(server: Server, query: str, status: int) -> None:
    assert server.post(f"/v1/explain?{query}", noise_png()).status == status


def test_values_are_typed_and_defaults_filled_in() -> None:
    assert parse(QueryParams("top=3"), PREDICT) == {"model": None, "top": 3}
    assert parse(QueryParams("layer=-1&opacity=0"), EXPLAIN)["layer"] == -1


def test_the_nearest_parameter_is_suggested() -> None:
    with pytest.raises(APIError, match="unknown parameter 'opacty'; did you mean 'opacity'"):
        parse(QueryParams("opacty=3"), EXPLAIN)
