"""The description of the service in OpenAPI 3.1, written from the tables by which requests are read and refused."""

from collections.abc import Iterable, Sequence
from typing import Any

from vitkit.serve import parameters
from vitkit.serve.errors import REFUSALS
from vitkit.serve.limits import Limits
from vitkit.serve.parameters import Parameter

_IMAGES = ("image/jpeg", "image/png", "image/webp", "image/bmp", "image/gif", "image/tiff", "application/octet-stream")
_EVERYWHERE = ("bad_host", "bad_origin", "unauthorized", "internal")
_GET = (*_EVERYWHERE, "method_not_allowed")
_POST = (
    *_GET, "bad_request", "bad_parameter", "unknown_model", "slow_upload", "body_too_large", "too_many_images",
    "too_many_pixels", "unsupported_format", "unreadable_image", "decoding_limit", "overloaded", "stopping", "too_late",
)  # fmt: skip

_TEXT = {"type": "string"}
_NUMBER = {"type": "number"}
_WHOLE = {"type": "integer"}
_BYTES = {"type": "string", "format": "binary"}


def document(limits: Limits, version: str) -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {"title": "vitkit serve", "version": version, "description": "Vision Transformers over HTTP."},
        "paths": {
            "/v1/predict": _post("The best labels for one or many images", parameters.PREDICT, limits,
                                 {"application/json": _ref("Predictions")}, many=True),
            "/v1/explain": _post("Which patches made the model say what it said", parameters.EXPLAIN, limits,
                                 {"application/json": _ref("Explanation"), "image/png": _BYTES},
                                 more=["cannot_explain"]),
            "/v1/attention": _post("All attention of one image in a compact binary form: see docs/guides/serve.md",
                                   parameters.ATTENTION, limits,
                                   {"application/octet-stream": _BYTES},
                                   more=["cannot_explain"]),
            "/v1/models": _get("The models that are served", _ref("Models")),
            "/v1/models/{name}/card": _get("The model card", _TEXT, "text/plain", ["unknown_model"], "name", _TEXT),
            "/v1/samples": _get("Images to try", _ref("Samples")),
            "/v1/samples/{number}": _get("One of them", _BYTES, "image/*", ["not_found"], "number",
                                         {**_WHOLE, "minimum": 0}),
            "/healthz": _get("The process answers", _ref("Status")),
            "/readyz": _get("Models and decoders are ready", _ref("Status"), refusals=["stopping"]),
            "/metrics": _get("Prometheus text", _TEXT, "text/plain"),
            "/openapi.json": _get("This document", {"type": "object"}),
        },
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }  # fmt: skip


def _schemas() -> dict[str, Any]:
    prediction = _object(label=_TEXT, score={**_NUMBER, "minimum": 0, "maximum": 1})
    error = _object(code={**_TEXT, "enum": list(REFUSALS)}, message=_TEXT)
    result = _object({"predictions", "error"}, name=_TEXT, predictions=_list(prediction), error=error)
    model = _object(
        {"layers", "heads", "patch", "parameters"},
        name=_TEXT, classes=_list(_TEXT), input=_object(height=_WHOLE, width=_WHOLE, channels=_WHOLE), engine=_TEXT,
        explains={"type": "boolean"}, layers=_WHOLE, heads=_WHOLE, patch=_list(_WHOLE), parameters=_WHOLE,
    )  # fmt: skip
    explained = _object(index=_WHOLE, label=_TEXT, score=_NUMBER)
    return {
        "Error": _object(error=error),
        "Predictions": _object(model=_TEXT, results=_list(result)),
        "Explanation": _object(
            model=_TEXT, method=_TEXT, unit=_TEXT, **{"class": explained}, map=_list(_list(_NUMBER)),
            size=_list(_WHOLE), region=_list(_NUMBER),
        ),
        "Models": _object(models=_list(model)),
        "Samples": _object(samples=_list(_object(name=_TEXT, address=_TEXT))),
        "Status": _object(status=_TEXT),
    }  # fmt: skip


def _object(optional: Iterable[str] = (), **properties: Any) -> dict[str, Any]:
    required = [name for name in properties if name not in set(optional)]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _post(
    about: str,
    takes: Sequence[Parameter],
    limits: Limits,
    gives: dict[str, Any],
    more: Sequence[str] = (),
    many: bool = False,
) -> dict[str, Any]:
    part = _list(_BYTES)
    form = {"type": "object", "properties": {"image": {**part, "maxItems": limits.images if many else 1}}}
    body = {kind: {"schema": {**_BYTES, "maxLength": limits.body}} for kind in _IMAGES}
    return {
        "post": {
            "summary": about,
            "parameters": [
                {"name": p.name, "in": "query", "description": p.about, "schema": p.schema()} for p in takes
            ],
            "requestBody": {"required": True, "content": {**body, "multipart/form-data": {"schema": form}}},
            "responses": _responses(gives, [*_POST, *more]),
        }
    }


def _get(
    about: str,
    gives: dict[str, Any],
    kind: str = "application/json",
    refusals: Sequence[str] = (),
    name: str = "",
    schema: dict[str, Any] | None = None,
) -> dict[str, Any]:
    inside = [{"name": name, "in": "path", "required": True, "schema": schema}] if name else []
    responses = _responses({kind: gives}, [*_GET, *refusals])
    return {"get": {"summary": about, "parameters": inside, "responses": responses}}


def _responses(gives: dict[str, Any], codes: Sequence[str]) -> dict[str, Any]:
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(REFUSALS[code][0], []).append(f"{code}: {REFUSALS[code][1]}")
    refused = {"application/json": {"schema": _ref("Error")}}
    return {
        "200": {"description": "done", "content": {kind: {"schema": schema} for kind, schema in gives.items()}},
        **{str(s): {"description": "; ".join(by_status[s]), "content": refused} for s in sorted(by_status)},
    }
