import re

from vitkit.serve.metrics import IMAGES, SECONDS, Metrics

from .client import Server, noise_png


def value(text: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, flags=re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_names_types_and_labels_are_those_that_dashboards_use() -> None:
    metrics = Metrics(lambda: 3, lambda: 4)
    metrics.requests.labels("/", "200").inc()
    metrics.request_seconds.labels("/").observe(0.3)
    for each in (metrics.batch_images, metrics.batch_seconds):
        each.labels("pets").observe(1.5)
    metrics.images.labels("pets").inc(2)
    text = metrics.text().decode()
    assert dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, flags=re.MULTILINE)) == {
        "vitkit_requests_total": "counter",
        "vitkit_request_seconds": "histogram",
        "vitkit_images_total": "counter",
        "vitkit_batch_images": "histogram",
        "vitkit_batch_seconds": "histogram",
        "vitkit_decoders_replaced_total": "counter",
        "vitkit_images_waiting": "gauge",
        "vitkit_bytes_held": "gauge",
    }
    assert value(text, 'vitkit_requests_total{path="/",status="200"}') == 1
    assert value(text, 'vitkit_images_total{model="pets"}') == 2
    assert (value(text, "vitkit_images_waiting"), value(text, "vitkit_bytes_held")) == (3, 4)
    assert "\nvitkit_decoders_replaced_total 0.0\n" in text
    for name, label, buckets in (
        ("vitkit_request_seconds", 'path="/"', SECONDS),
        ("vitkit_batch_images", 'model="pets"', IMAGES),
        ("vitkit_batch_seconds", 'model="pets"', SECONDS),
    ):
        bounds = re.findall(rf'^{name}_bucket{{le="([^"]+)",{label}}} ', text, flags=re.MULTILINE)
        assert bounds == [*map(str, buckets), "+Inf"]


def test_a_histogram_counts_each_value_once_and_buckets_are_cumulative() -> None:
    metrics = Metrics(lambda: 0, lambda: 0)
    for number in (0.5, 1.0, 1.5, 5.0):
        metrics.batch_images.labels("pets").observe(number)
    text = metrics.text().decode()
    counts = [
        value(text, f'vitkit_batch_images_bucket{{le="{le}",model="pets"}}') for le in (1.0, 2.0, 4.0, 8.0, "+Inf")
    ]
    assert counts == [2, 3, 3, 4, 4]
    assert value(text, 'vitkit_batch_images_sum{model="pets"}') == 8


def test_labels_are_escaped() -> None:
    metrics = Metrics(lambda: 3, lambda: 4)
    metrics.images.labels('a"b\\c\nd').inc()
    assert b'vitkit_images_total{model="a\\"b\\\\c\\nd"} 1.0\n' in metrics.text()


def test_requests_and_images_are_counted(server: Server) -> None:
    names = ['vitkit_requests_total{path="/v1/predict",status="200"}', 'vitkit_images_total{model="others"}']
    before = server.get("/metrics").content.decode()
    for _ in range(3):
        assert server.post("/v1/predict?model=others", noise_png()).status == 200
    server.get("/an/unknown/address")
    response = server.get("/metrics")
    after = response.content.decode()
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert [value(after, name) - value(before, name) for name in names] == [3, 3]
    assert "unknown" not in after
    for line in after.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) \w+ .+|\w+(\{(\w+="[^"]*",?)+\})? [0-9.e+-]+', line), line
