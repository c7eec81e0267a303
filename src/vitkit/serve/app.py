"""The HTTP application: routes and endpoints."""

import asyncio
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from vitkit.explanation.methods import parse_query
from vitkit.serve import explain_api, query_parameters
from vitkit.serve.decoder_pool import check_format
from vitkit.serve.errors import APIError
from vitkit.serve.limits import Ticket
from vitkit.serve.metrics import CONTENT_TYPE
from vitkit.serve.middleware import RequestMiddleware
from vitkit.serve.model_registry import ServedModel
from vitkit.serve.openapi import openapi_document
from vitkit.serve.sample_images import content_type
from vitkit.serve.service import InferenceService, deadline
from vitkit.serve.uploads import Upload, read_image, read_images
from vitkit.version import __version__

PAGE = Path(__file__).parent / "page"


def create_app(service: InferenceService, token: str | None = None, hosts: Iterable[str] = ()) -> Starlette:
    endpoints = Endpoints(service)
    routes: list[Route | Mount] = [
        Route("/", endpoints.page),
        Route("/v1/predict", endpoints.predict, methods=["POST"]),
        Route("/v1/attention", endpoints.attention, methods=["POST"]),
        Route("/v1/explain", endpoints.explain, methods=["POST"]),
        Route("/v1/models", endpoints.models),
        Route("/v1/models/{name}/card", endpoints.card),
        Route("/v1/samples", endpoints.samples),
        Route("/v1/samples/{number:int}", endpoints.sample),
        Route("/healthz", endpoints.healthy),
        Route("/readyz", endpoints.ready),
        Route("/metrics", endpoints.metrics),
        Route("/openapi.json", endpoints.openapi),
    ]
    paths = [route.path for route in routes if isinstance(route, Route) and "{" not in route.path]
    return Starlette(
        routes=[*routes, Mount("/page", StaticFiles(directory=PAGE))],
        exception_handlers={HTTPException: _reraise, APIError: _reraise},
        middleware=[Middleware(RequestMiddleware, metrics=service.metrics, paths=paths, token=token, hosts=hosts)],
    )


async def _reraise(request: Request, error: Exception) -> NoReturn:
    raise error  # the middleware formats every error


class Endpoints:
    def __init__(self, service: InferenceService) -> None:
        self.service, self.limits = service, service.limits
        self.document = openapi_document(service.limits, __version__)

    async def page(self, request: Request) -> Response:
        return FileResponse(PAGE / "index.html", headers={"Cache-Control": "no-cache"})

    async def predict(self, request: Request) -> Response:
        options = query_parameters.parse(request.query_params, query_parameters.PREDICT)
        served = self.service.model(options["model"])
        with Ticket(self.service.admission) as ticket:
            uploads = await read_images(request, self.limits, ticket)
            until = deadline(self.limits.deadline)
            results = await asyncio.gather(
                *(self._predict_one(served, upload, options["top"], until) for upload in uploads),
                return_exceptions=True,
            )
        for result in results:
            if isinstance(result, BaseException) and not (len(results) > 1 and _is_image_error(result)):
                raise result
        entries = [
            {"name": upload.name, **(result.json() if isinstance(result, APIError) else {"predictions": result})}
            for upload, result in zip(uploads, results, strict=True)
        ]
        return JSONResponse({"model": served.name, "results": entries})

    async def _predict_one(self, served: ServedModel, upload: Upload, top: int, until: float) -> list[dict[str, Any]]:
        check_format(upload.content)
        decoded = await self.service.decode(served, upload.content, until)
        return _ranked(served, await self.service.probabilities(served, decoded.pixels, until), top)

    async def attention(self, request: Request) -> Response:
        options = query_parameters.parse(request.query_params, query_parameters.ATTENTION)
        served, model = self.service.explainable(options["model"])
        query = parse_query(options["query"])
        all_rows = query is None and explain_api.all_rows_fit(served, model, self.limits.attention_bytes)
        with Ticket(self.service.admission) as ticket:
            encoded = await read_image(request, self.limits, ticket)
            until = deadline(self.limits.deadline)
            pixels = (decoded := await self.service.decode(served, encoded, until)).pixels
            scores, (header, scale, code) = await _gather(
                self.service.probabilities(served, pixels, until),
                self.service.explain(
                    lambda: explain_api.call(explain_api.attention, served, model, pixels, query, all_rows), until
                ),
            )
        header |= {"model": served.name, "predictions": _ranked(served, scores, options["top"])}
        header |= explain_api.location(served, decoded)
        return Response(explain_api.pack(header, scale, code), media_type="application/octet-stream")

    async def explain(self, request: Request) -> Response:
        options = query_parameters.parse(request.query_params, query_parameters.EXPLAIN)
        served, model = self.service.explainable(options["model"])
        explain_api.check_memory(served, model, options["method"], self.limits.explain_memory)
        with Ticket(self.service.admission) as ticket:
            encoded = await read_image(request, self.limits, ticket)
            until = deadline(self.limits.explain_deadline)
            decoded = await self.service.decode(served, encoded, until)
            explained = await self.service.explain(
                lambda: explain_api.explanation(served, model, decoded, options), until
            )
        if options["format"] == "png":
            content = await asyncio.to_thread(explain_api.to_png, decoded, explained, options["opacity"] / 100)
            return Response(content, media_type="image/png")
        return JSONResponse(explain_api.to_json(served, decoded, explained))

    async def models(self, request: Request) -> Response:
        return JSONResponse({"models": [served.describe() for served in self.service.models.values()]})

    async def card(self, request: Request) -> Response:
        return PlainTextResponse(self.service.model(request.path_params["name"]).card)

    async def samples(self, request: Request) -> Response:
        names = enumerate(self.service.samples)
        return JSONResponse({"samples": [{"name": name, "address": f"/v1/samples/{i}"} for i, name in names]})

    async def sample(self, request: Request) -> Response:
        number, contents = request.path_params["number"], list(self.service.samples.values())
        if number >= len(contents):
            raise APIError("not_found", f"sample {number} does not exist: there are {len(contents)} samples")
        return Response(contents[number], media_type=content_type(contents[number]))

    async def healthy(self, request: Request) -> Response:
        if not self.service.is_alive():
            raise APIError("unavailable", "decoding or inference keeps failing: restart the server")
        return JSONResponse({"status": "alive"})

    async def ready(self, request: Request) -> Response:
        if not self.service.ready:
            raise APIError("stopping", "the server is starting or stopping")
        if not self.service.is_ready():
            raise APIError("unavailable", "decoding or inference does not work now: retry later")
        return JSONResponse({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        return Response(self.service.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(self.document)


def _is_image_error(error: BaseException) -> bool:
    """Return whether the error concerns one image only, so that other images of the request keep their results."""
    return isinstance(error, APIError) and error.status < 429


def _ranked(served: ServedModel, scores: Any, top: int) -> list[dict[str, Any]]:
    return [asdict(prediction) for prediction in served.predictor.rank(scores[None], top)[0]]


async def _gather(*jobs: Any) -> list[Any]:
    """Return all results. If one fails, wait for the others first, so that nothing outlives its request."""
    done = await asyncio.gather(*jobs, return_exceptions=True)
    for result in done:
        if isinstance(result, BaseException):
            raise result
    return list(done)
