"""The OpenAPI 3.1 document of the service, generated from the tables of parameters and error codes."""

from collections.abc import Iterable, Sequence
from typing import Any

from vitkit.serve import query_parameters as parameters
from vitkit.serve.errors import ERROR_CODES
from vitkit.serve.limits import Limits
from vitkit.serve.query_parameters import Parameter

_BODY_TYPES = (*(f"image/{t}" for t in ("jpeg", "png", "webp", "bmp", "gif", "tiff")), "application/octet-stream")
_ALL = ("bad_host", "bad_origin", "unauthorized", "internal", "unavailable")
_GET = (*_ALL, "method_not_allowed")
_POST = (
    *_GET, "bad_request", "bad_parameter", "unknown_model", "slow_upload", "body_too_large", "too_many_images",
    "too_many_pixels", "unsupported_format", "unreadable_image", "decoding_limit", "overloaded", "stopping", "too_late",
)  # fmt: skip

_TEXT = {"type": "string"}
_NUMBER = {"type": "number"}
_INTEGER = {"type": "integer"}
_BYTES = {"type": "string", "format": "binary"}


def openapi_document(limits: Limits, version: str) -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {"title": "vitkit serve", "version": version, "description": "Vision Transformers over HTTP."},
        "paths": {
            "/v1/predict": _post("Predict the most probable classes of one or more images", parameters.PREDICT, limits,
                                 {"application/json": _ref("Predictions")}, many=True),
            "/v1/explain": _post("Explain a prediction by a map over the patches", parameters.EXPLAIN, limits,
                                 {"application/json": _ref("Explanation"), "image/png": _BYTES},
                                 errors=["cannot_explain"]),
            "/v1/attention": _post("Return all attention weights of one image in the format of docs/guides/serve.md",
                                   parameters.ATTENTION, limits,
                                   {"application/octet-stream": _BYTES},
                                   errors=["cannot_explain"]),
            "/v1/models": _get("List the served models", _ref("Models")),
            "/v1/models/{name}/card": _get("Return the model card", _TEXT, "text/plain", ["unknown_model"], "name",
                                           _TEXT),
            "/v1/samples": _get("List the sample images", _ref("Samples")),
            "/v1/samples/{number}": _get("Return a sample image", _BYTES, "image/*", ["not_found"], "number",
                                         {**_INTEGER, "minimum": 0}),
            "/healthz": _get("Check that decoding and inference work or may recover", _ref("Status")),
            "/readyz": _get("Check that models and decoders are ready", _ref("Status"), errors=["stopping"]),
            "/metrics": _get("Return Prometheus metrics", _TEXT, "text/plain"),
            "/openapi.json": _get("Return this document", {"type": "object"}),
        },
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }  # fmt: skip


def _schemas() -> dict[str, Any]:
    prediction = _object(label=_TEXT, score={**_NUMBER, "minimum": 0, "maximum": 1}, index=_INTEGER)
    error = _object(code={**_TEXT, "enum": list(ERROR_CODES)}, message=_TEXT)
    result = _object({"predictions", "error"}, name=_TEXT, predictions=_list(prediction), error=error)
    model = _object(
        {"layers", "heads", "patch", "parameters"},
        name=_TEXT, classes=_list(_TEXT), input=_object(height=_INTEGER, width=_INTEGER, channels=_INTEGER),
        engine=_TEXT, explains={"type": "boolean"}, layers=_INTEGER, heads=_INTEGER, patch=_list(_INTEGER),
        parameters=_INTEGER,
    )  # fmt: skip
    explained = _object(index=_INTEGER, label=_TEXT, score=_NUMBER)
    return {
        "Error": _object(error=error),
        "Predictions": _object(model=_TEXT, results=_list(result)),
        "Explanation": _object(
            model=_TEXT, method=_TEXT, unit=_TEXT, **{"class": explained}, map=_list(_list(_NUMBER)),
            size=_list(_INTEGER), region=_list(_NUMBER),
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
    returns: dict[str, Any],
    errors: Sequence[str] = (),
    many: bool = False,
) -> dict[str, Any]:
    images = {**_list(_BYTES), "maxItems": limits.request_images if many else 1}
    form = {"type": "object", "properties": {"image": images}}
    query = [{"name": p.name, "in": "query", "description": p.about, "schema": p.schema()} for p in takes]
    body = {kind: {"schema": {**_BYTES, "maxLength": limits.body_bytes}} for kind in _BODY_TYPES}
    return {
        "post": {
            "summary": about,
            "parameters": query,
            "requestBody": {"required": True, "content": {**body, "multipart/form-data": {"schema": form}}},
            "responses": _responses(returns, [*_POST, *errors]),
        }
    }


def _get(
    about: str,
    returns: dict[str, Any],
    kind: str = "application/json",
    errors: Sequence[str] = (),
    name: str = "",
    schema: dict[str, Any] | None = None,
) -> dict[str, Any]:
    path = [{"name": name, "in": "path", "required": True, "schema": schema}] if name else []
    responses = _responses({kind: returns}, [*_GET, *errors])
    return {"get": {"summary": about, "parameters": path, "responses": responses}}


def _responses(returns: dict[str, Any], codes: Sequence[str]) -> dict[str, Any]:
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(ERROR_CODES[code][0], []).append(f"{code}: {ERROR_CODES[code][1]}")
    error = {"application/json": {"schema": _ref("Error")}}
    return {
        "200": {"description": "done", "content": {kind: {"schema": schema} for kind, schema in returns.items()}},
        **{str(s): {"description": "; ".join(by_status[s]), "content": error} for s in sorted(by_status)},
    }
