"""An object store on loopback that can fail, answer slowly or break connections, and a plain client for it.

`loop://` sends one HTTP request at a time through urllib, as the clients of several stores do. `http://` is fsspec's
own client, which requests many ranges at once.
"""

import contextlib
import json
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
from fsspec.spec import AbstractFileSystem


@dataclass
class Store:
    """The state of the server. `fail` requests get 503, or half of the content if `broken`, after `wait` seconds."""

    root: Path
    port: int = 0
    fail: int = 0
    broken: bool = False
    wait: float = 0.0
    requests: list[str] = field(default_factory=list)
    sent: int = 0

    def url(self, protocol: str, name: str) -> str:
        return f"{protocol}://127.0.0.1:{self.port}/{name}"


def make_handler(store: Store) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, body: bool) -> None:
            store.requests.append(f"{self.command} {self.path} {self.headers.get('Range', '')}".strip())
            time.sleep(store.wait)
            if store.fail and not store.broken:
                store.fail -= 1
                return self._send(503, b"", {}, body)
            path = store.root / self.path.lstrip("/")
            if path.is_dir():
                names = sorted(p.name for p in path.iterdir())
                links = "".join(f'<a href="{name}">{name}</a>' for name in names)
                content = json.dumps(names).encode() if "json" in self.headers.get("Accept", "") else links.encode()
                return self._send(200, content, {"Content-Type": "text/html"}, body)
            if not path.is_file():
                return self._send(404, b"", {}, body)
            content, wanted = path.read_bytes(), re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            if wanted is None:
                return self._send(200, content, {"Accept-Ranges": "bytes"}, body)
            start, end = int(wanted[1]), int(wanted[2] or len(content) - 1) + 1
            if start >= len(content):
                return self._send(416, b"", {"Content-Range": f"bytes */{len(content)}"}, body)
            span = {"Content-Range": f"bytes {start}-{min(end, len(content)) - 1}/{len(content)}"}
            return self._send(206, content[start:end], span, body)

        def _send(self, code: int, content: bytes, headers: dict[str, str], body: bool) -> None:
            self.send_response(code)
            for key, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            if body and store.fail and store.broken:
                store.fail -= 1
                self.wfile.write(content[: len(content) // 2])
                self.close_connection = True
            elif body:
                store.sent += len(content)
                self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


@contextlib.contextmanager
def serving(root: Path) -> Iterator[Store]:
    store = Store(root)
    server = ThreadingHTTPServer(("127.0.0.1", 0), make_handler(store))
    store.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Loop(AbstractFileSystem):
    protocol = "loop"
    cachable = False

    def _request(self, path: str, method: str = "GET", **headers: str) -> Any:
        request = urllib.request.Request(f"http://{self._strip_protocol(path)}", method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=5) as response:
                return response.headers, response.read()
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise FileNotFoundError(path) from error
            raise

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        headers, _body = self._request(path, "HEAD")
        return {"name": self._strip_protocol(path), "size": int(headers["Content-Length"]), "type": "file"}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path).rstrip("/")
        names = json.loads(self._request(path + "/", Accept="json")[1])
        rows = [{"name": f"{path}/{name}", "size": 1, "type": "file"} for name in names]
        return rows if detail else [row["name"] for row in rows]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        span = {} if start is None else {"Range": f"bytes={start}-{'' if end is None else end - 1}"}
        try:
            return bytes(self._request(path, **span)[1])
        except urllib.error.HTTPError as error:
            if error.code == 416:  # the range begins beyond the end
                return b""
            raise

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        from fsspec.spec import AbstractBufferedFile

        class File(AbstractBufferedFile):
            def _fetch_range(self, start: int, end: int) -> bytes:
                return self.fs.cat_file(self.path, start, end)  # type: ignore[no-any-return]

        return File(self, path, mode, block_size=2**16)


fsspec.register_implementation("loop", Loop, clobber=True)
