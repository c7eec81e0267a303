"""The HTTP application: which address does what."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from vitkit.serve import attention_api as attention
from vitkit.serve import explain_api as maps
from vitkit.serve import parameters
from vitkit.serve.decoder_pool import check_format
from vitkit.serve.errors import Refusal
from vitkit.serve.metrics import CONTENT_TYPE
from vitkit.serve.middleware import Guard
from vitkit.serve.models import Served
from vitkit.serve.openapi import document
from vitkit.serve.samples import content_type
from vitkit.serve.service import House, deadline
from vitkit.serve.uploads import Upload, read_images, read_one
from vitkit.version import __version__

PAGE = Path(__file__).parent / "page"
BINARY = "application/octet-stream"


def create_app(house: House, token: str | None = None, hosts: Iterable[str] = ()) -> Starlette:
    endpoints = Endpoints(house)
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
        exception_handlers={HTTPException: _pass_on, Refusal: _pass_on},
        middleware=[Middleware(Guard, metrics=house.metrics, paths=paths, token=token, hosts=hosts)],
    )


async def _pass_on(request: Request, error: Exception) -> NoReturn:
    raise error  # the guard words every error


class Endpoints:
    def __init__(self, house: House) -> None:
        self.house, self.limits = house, house.limits
        self.document = document(house.limits, __version__)

    async def page(self, request: Request) -> Response:
        return FileResponse(PAGE / "index.html", headers={"Cache-Control": "no-cache"})

    async def predict(self, request: Request) -> Response:
        asked = parameters.read(request.query_params, parameters.PREDICT)
        served = self.house.model(asked["model"])
        with self.house.gate.place() as place:
            uploads = await read_images(request, self.limits, place)
            until = deadline(self.limits.deadline)
            answers = await asyncio.gather(
                *(self._predict_one(served, upload, asked["top"], until) for upload in uploads), return_exceptions=True
            )
        for answer in answers:
            if isinstance(answer, BaseException) and not (len(answers) > 1 and _is_its_own_fault(answer)):
                raise answer
        results = [
            {"name": upload.name, **(answer.json() if isinstance(answer, Refusal) else {"predictions": answer})}
            for upload, answer in zip(uploads, answers, strict=True)
        ]
        return JSONResponse({"model": served.name, "results": results})

    async def _predict_one(self, served: Served, upload: Upload, top: int, until: float) -> list[dict[str, Any]]:
        check_format(upload.content)
        decoded = await self.house.decode(served, upload.content, until)
        return _ranked(served, await self.house.scores(served, decoded.pixels, until), top)

    async def attention(self, request: Request) -> Response:
        asked = parameters.read(request.query_params, parameters.ATTENTION)
        served, model = self.house.explainable(asked["model"])
        query = maps.read_query(asked["query"])
        whole = query is None and attention.fits(served.predictor, model, self.limits.attention)
        with self.house.gate.place() as place:
            encoded = await read_one(request, self.limits, place)
            until = deadline(self.limits.deadline)
            decoded = await self.house.decode(served, encoded, until)
            scores, found = await _all(
                self.house.scores(served, decoded.pixels, until),
                self.house.explain(
                    lambda: maps.asked_right(attention.encode, served.predictor, model, decoded.pixels, query, whole),
                    until,
                ),
            )
        head = {"model": served.name, "predictions": _ranked(served, scores, asked["top"])}
        head |= found["head"] | maps.where(served, decoded)
        return Response(attention.pack(head, found["scale"], found["code"]), media_type=BINARY)

    async def explain(self, request: Request) -> Response:
        asked = parameters.read(request.query_params, parameters.EXPLAIN)
        served, model = self.house.explainable(asked["model"])
        with self.house.gate.place() as place:
            encoded = await read_one(request, self.limits, place)
            until = deadline(self.limits.explain_deadline)
            decoded = await self.house.decode(served, encoded, until)
            found = await self.house.explain(lambda: maps.explained(served, model, decoded, asked), until)
        if asked["format"] == "png":
            content = await asyncio.to_thread(maps.as_png, decoded, found, asked["opacity"] / 100)
            return Response(content, media_type="image/png")
        return JSONResponse(maps.as_json(served, decoded, found))

    async def models(self, request: Request) -> Response:
        return JSONResponse({"models": [served.about() for served in self.house.models.values()]})

    async def card(self, request: Request) -> Response:
        return PlainTextResponse(self.house.model(request.path_params["name"]).card)

    async def samples(self, request: Request) -> Response:
        names = enumerate(self.house.samples)
        return JSONResponse({"samples": [{"name": name, "address": f"/v1/samples/{i}"} for i, name in names]})

    async def sample(self, request: Request) -> Response:
        number, contents = request.path_params["number"], list(self.house.samples.values())
        if number >= len(contents):
            raise Refusal("not_found", f"there are {len(contents)} samples")
        return Response(contents[number], media_type=content_type(contents[number]))

    async def healthy(self, request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def ready(self, request: Request) -> Response:
        if not self.house.is_ready():
            raise Refusal("stopping", "the server is starting or stopping")
        return JSONResponse({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        return Response(self.house.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(self.document)


def _is_its_own_fault(error: BaseException) -> bool:
    """Whether an image was refused for what it is: the answers to others beside it stand."""
    return isinstance(error, Refusal) and error.status < 429


def _ranked(served: Served, scores: Any, top: int) -> list[dict[str, Any]]:
    return [{"label": p.label, "score": p.score} for p in served.predictor.rank(scores[None], top)[0]]


async def _all(*jobs: Any) -> list[Any]:
    """All results; when one fails the others are waited for, so that nothing outlives its request."""
    done = await asyncio.gather(*jobs, return_exceptions=True)
    for result in done:
        if isinstance(result, BaseException):
            raise result
    return list(done)
