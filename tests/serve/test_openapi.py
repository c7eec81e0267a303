"""Responses match the OpenAPI document. Requests are generated from the document itself."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .client import Response, Server, noise_png

BODIES = st.one_of(st.just(noise_png()), st.binary(max_size=50), st.just(noise_png()[:60]))
WEIRD = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=8)


def conforms(value: Any, schema: dict[str, Any], document: dict[str, Any]) -> bool:
    """Validate the part of JSON Schema that the document uses."""
    if "$ref" in schema:
        return conforms(value, document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]], document)
    kinds = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}
    if not isinstance(value, kinds[schema["type"]]) or value not in schema.get("enum", [value]):
        return False
    if isinstance(value, list):
        return all(conforms(item, schema["items"], document) for item in value)
    if isinstance(value, dict) and "properties" in schema:
        known = schema["properties"]
        return set(schema["required"]) <= value.keys() <= known.keys() and all(
            conforms(item, known[name], document) for name, item in value.items()
        )
    return isinstance(value, dict) or schema.get("minimum", value) <= value <= schema.get("maximum", value)


def values(schema: dict[str, Any]) -> st.SearchStrategy[str]:
    """Mostly valid values, sometimes arbitrary text."""
    if "enum" in schema:
        allowed: st.SearchStrategy[str] = st.sampled_from(schema["enum"])
    elif schema["type"] == "integer":
        allowed = st.integers(schema["minimum"], schema["maximum"]).map(str)
    elif "pattern" in schema:
        allowed = st.from_regex(re.compile(schema["pattern"], re.ASCII), fullmatch=True).map(str.strip)
    else:
        allowed = st.sampled_from(["pets", "others", "cat", "2"])
    return st.one_of(allowed, allowed, allowed, WEIRD)


def check(response: Response, operation: dict[str, Any], document: dict[str, Any]) -> None:
    assert str(response.status) in operation["responses"], response.content
    assert response.status < 500, response.content
    kind = response.headers["content-type"].split(";")[0]
    contents = operation["responses"][str(response.status)]["content"]
    assert kind in contents or (kind.startswith("image/") and "image/*" in contents)
    if kind == "application/json":
        assert conforms(response.json(), contents[kind]["schema"], document), response.content


@pytest.fixture(scope="module")
def document(server: Server) -> dict[str, Any]:
    return server.get("/openapi.json").json()


def test_every_get_responds_as_described(server: Server, document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        if "get" in methods:
            names = ("pets", "0", "nobody", "%00", "-1") if "{" in path else ("",)
            responses = [server.get(re.sub(r"\{\w+\}", name, path)) for name in names]
            for response in responses:
                check(response, methods["get"], document)
            assert [response.status for response in responses].count(200) == 1, path


@pytest.mark.parametrize("path", ["/v1/predict", "/v1/attention", "/v1/explain"])
@given(data=st.data())
def test_every_post_responds_as_described(
    server: Server, document: dict[str, Any], path: str, data: st.DataObject
) -> None:
    from urllib.parse import urlencode

    operation = document["paths"][path]["post"]
    query = {
        p["name"]: data.draw(values(p["schema"]), p["name"])
        for p in operation["parameters"]
        if data.draw(st.booleans())
    }
    body, kind = data.draw(BODIES), data.draw(st.sampled_from([*operation["requestBody"]["content"], "text/html"]))
    check(server.post(f"{path}?{urlencode(query)}", body, Content_Type=kind), operation, document)


def test_the_document_names_every_route(document: dict[str, Any]) -> None:
    from vitkit.serve.app import create_app
    from vitkit.serve.limits import Limits
    from vitkit.serve.service import InferenceService

    app = create_app(InferenceService({}, Limits(), {}))
    routes = {re.sub(":int", "", route.path) for route in app.routes}  # type: ignore[attr-defined]
    assert routes - {"/", "/page"} == document["paths"].keys()
