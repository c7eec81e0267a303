"""Mutations of images and HTTP requests: sizes, lengths, checksums, truncation, splices."""

import io
import random
import struct
import zlib

import numpy as np
from PIL import Image

EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def images() -> list[bytes]:
    """Return a small image of each format and mode."""
    rng = np.random.default_rng(0)
    colour = Image.fromarray(rng.integers(0, 256, (40, 56, 3), dtype=np.uint8))
    smooth = Image.linear_gradient("L").resize((64, 48)).convert("RGB")
    deep = Image.fromarray(rng.integers(0, 65536, (30, 40), dtype=np.uint16))
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "text"
    kinds: list[tuple[Image.Image, str, dict]] = [
        (colour, "PNG", {}), (smooth.quantize(32), "PNG", {"transparency": 3}), (deep, "PNG", {}),
        (colour.convert("RGBA"), "PNG", {"optimize": True}),
        (smooth, "JPEG", {}), (colour, "JPEG", {"progressive": True}),
        (smooth, "JPEG", {"exif": exif}), (smooth.convert("CMYK"), "JPEG", {}), (smooth, "WEBP", {}),
        (colour, "WEBP", {"lossless": True}), (smooth, "GIF", {"save_all": True, "append_images": [colour]}),
        (colour, "BMP", {}), (smooth.quantize(16), "BMP", {}), (colour, "TIFF", {}),
        (smooth, "TIFF", {"compression": "tiff_lzw"}), (smooth, "TIFF", {"compression": "tiff_adobe_deflate"}),
        (smooth, "TIFF", {"compression": "jpeg"}), (deep, "TIFF", {}),
        (smooth.convert("1"), "TIFF", {"compression": "group4"}),
    ]  # fmt: skip
    return [_saved(*kind) for kind in kinds]


def _saved(image: Image.Image, kind: str, options: dict) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Apply up to four mutations."""
    for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 4])):
        content = rng.choice(MUTATIONS)(content, rng)
    return content


def _flip(content: bytes, rng: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(rng.randint(1, 12)):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def _number(content: bytes, rng: random.Random) -> bytes:
    """Write an extreme number at a random position, mostly near the start, where sizes and offsets are."""
    form = rng.choice(["<I", ">I", "<H", ">H"])
    size = struct.calcsize(form)
    if len(content) <= size:
        return content
    at = rng.randrange(min(len(content) - size, rng.choice([32, 64, 256, 1 << 30])))
    value = rng.choice(EXTREMES) & (2 ** (8 * size) - 1)
    return content[:at] + struct.pack(form, value) + content[at + size :]


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randint(0, len(content))]


def _remove(content: bytes, rng: random.Random) -> bytes:
    at = rng.randint(0, len(content))
    return content[:at] + content[at + rng.randint(1, 64) :]


def _insert(content: bytes, rng: random.Random) -> bytes:
    at = rng.randint(0, len(content))
    return content[:at] + rng.randbytes(rng.randint(1, 64)) + content[at:]


def _repeat(content: bytes, rng: random.Random) -> bytes:
    at, length = rng.randint(0, len(content)), rng.randint(1, 256)
    return content[:at] + content[at : at + length] * rng.randint(2, 40) + content[at + length :]


def _noise(content: bytes, rng: random.Random) -> bytes:
    """Keep the first bytes and replace the rest by noise."""
    return content[: rng.randint(4, 40)] + rng.randbytes(rng.randint(0, 4000))


def _png(content: bytes, rng: random.Random) -> bytes:
    """Change the header or the data of a PNG and correct its checksum, so that it passes the first checks."""
    if not content.startswith(b"\x89PNG") or len(content) < 33:
        return content
    if rng.random() < 0.5:
        fields = [rng.choice([1, 40, 5000, 9000, 60000, 2**31 - 1]) for _ in range(2)]
        header = struct.pack(
            ">IIBBBBB", *fields, rng.choice([1, 8, 16]), rng.choice([0, 2, 3, 4, 6]), 0, 0, rng.randint(0, 1)
        )
        body = b"IHDR" + header
        return content[:12] + body + struct.pack(">I", zlib.crc32(body)) + content[33:]
    length = struct.unpack(">I", content[33:37])[0]
    body = content[37:41] + _flip(content[41 : 41 + length], rng)
    return content[:37] + body + struct.pack(">I", zlib.crc32(body)) + content[45 + length :]


def _zeros(content: bytes, rng: random.Random) -> bytes:
    """Return a small PNG file with many pixels."""
    side = rng.choice([500, 2000, 5000])
    header = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    data = b"IDAT" + zlib.compress(bytes(side * (side + 1)), 1)
    chunks = [
        struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part))
        for part in (header, data, b"IEND")
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


MUTATIONS = [_flip, _flip, _flip, _number, _number, _number, _cut, _remove, _insert, _repeat, _noise, _png, _png]
RARE = _zeros


def random_query(path: str, rng: random.Random) -> str:
    if rng.random() < 0.7:
        return path
    names = ["top", "model", "class", "layer", "head", "query", "method", "format", "x", "top", "%00", "a" * 200]
    values = [
        "1",
        "0",
        "-1",
        "99999999999",
        "small",
        "../../etc/passwd",
        "%00",
        "1,1",
        "NaN",
        "%F0%9F%92%A5",
        "'",
        "[]",
        "",
    ]
    query = "&".join(f"{rng.choice(names)}={rng.choice(values)}" for _ in range(rng.randint(1, 4)))
    return f"{path}{'&' if '?' in path else '?'}{query}"


def raw_request(rng: random.Random, files: list[bytes]) -> bytes:
    """Return a request of random parts that may contradict each other, sometimes with random bytes changed."""
    file = RARE(b"", rng) if rng.random() < 0.01 else mutated(rng.choice(files), rng)
    method = rng.choice(["POST"] * 8 + ["GET", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "PRI", "\0"])
    paths = ["/v1/predict"] * 6 + [
        "/v1/attention",
        "/v1/explain",
        "/",
        "/page/../../x",
        "/v1/models/%2e%2e/card",
        "*",
        "//",
        "/\xff",
        "/metrics",
    ]
    path = random_query(rng.choice(paths), rng)
    body, kind = _form(file, rng) if rng.random() < 0.6 else (file, rng.choice(["image/png", "text/html", ""]))
    headers = [f"Host: {rng.choice(['localhost'] * 9 + ['evil.example', '', '[', '1.2.3.4:x', 'localhost, b'])}"]
    headers += [f"Content-Type: {kind}"] if kind else []
    headers += rng.choice([
        [f"Content-Length: {len(body)}"], [f"Content-Length: {len(body)}"], [f"Content-Length: {len(body) + 10}"],
        [f"Content-Length: {len(body) // 2}"], ["Content-Length: -1"], ["Content-Length: 99999999999999999999"],
        ["Content-Length: 5", "Content-Length: 6"], ["Transfer-Encoding: chunked"], ["Transfer-Encoding: gzip"],
        ["Transfer-Encoding: chunked", "Content-Length: 3"], [],
    ])  # fmt: skip
    headers += rng.choice([
        [], [], [], ["Expect: 100-continue"], ["Upgrade: websocket", "Connection: Upgrade"], ["Origin: null"],
        ["X: " + "y" * 20_000], ["Authorization: Bearer \xff"], [": empty"], ["Content-Encoding: gzip"],
        ["Range: bytes=0-1"],
    ])  # fmt: skip
    if "Transfer-Encoding: chunked" in headers:
        body = b"%x\r\n" % len(body) + body + rng.choice([b"\r\n0\r\n\r\n", b"\r\n", b"", b"\r\nzz\r\n"])
    version = rng.choice(["HTTP/1.1"] * 8 + ["HTTP/1.0", "HTTP/2.0", "HTTP/9", ""])
    request = (
        "\r\n".join([f"{method} {path} {version}", *headers, "Connection: close", "", ""]).encode("latin-1") + body
    )
    return _flip(request, rng) if rng.random() < 0.15 else request


def _form(file: bytes, rng: random.Random) -> tuple[bytes, str]:
    parts = []
    for _ in range(rng.choice([0, 1, 1, 2, 5, 70])):
        disposition = rng.choice(
            ['form-data; name="a"; filename="a.png"'] * 6
            + [
                'form-data; name="a"',
                "form-data",
                'form-data; filename="../../x"',
                "form-data; name=\"\xff\"; filename*=UTF-8''%ff",
            ]
        )
        header = rng.choice([f"Content-Disposition: {disposition}"] * 8 + ["", "X" * 9000, ":", "Content-Disposition"])
        parts.append(
            b"--b0\r\n" + header.encode("latin-1") + b"\r\n\r\n" + file[: rng.choice([10, 1000, 1 << 30])] + b"\r\n"
        )
    end = rng.choice([b"--b0--\r\n"] * 6 + [b"", b"--b0", b"--b1--\r\n"])
    boundary = rng.choice(["b0"] * 9 + ["", "b1", "\xff", "x" * 300])
    return b"".join(parts) + end, f"multipart/form-data; boundary={boundary}"
