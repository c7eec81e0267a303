import re

from vitkit.serve.metrics import Histogram, Metrics

from .client import Server, picture


def test_a_histogram_counts_each_value_once_and_buckets_add_up() -> None:
    histogram = Histogram("h", "…", [1, 2], "path")
    for value in (0.5, 1.0, 1.5, 5.0):
        histogram.observe(value, "/")
    assert histogram.lines() == [
        'h_bucket{path="/",le="1"} 2', 'h_bucket{path="/",le="2"} 3', 'h_bucket{path="/",le="+Inf"} 4',
        'h_sum{path="/"} 8', 'h_count{path="/"} 4',
    ]  # fmt: skip


def test_labels_are_escaped() -> None:
    metrics = Metrics(lambda: 3, lambda: 4)
    metrics.images.add('a"b\\c\nd')
    assert 'vitkit_images_total{model="a\\"b\\\\c\\nd"} 1' in metrics.text()
    assert "vitkit_images_waiting 3\n" in metrics.text()


def value(text: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, flags=re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_what_the_server_does_is_counted(server: Server) -> None:
    names = ['vitkit_requests_total{path="/v1/predict",status="200"}', 'vitkit_images_total{model="others"}']
    before = server.get("/metrics").content.decode()
    for _ in range(3):
        assert server.post("/v1/predict?model=others", picture()).status == 200
    server.get("/an/address/that/nobody/knows")
    answer = server.get("/metrics")
    after = answer.content.decode()
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert [value(after, name) - value(before, name) for name in names] == [3, 3]
    assert "nobody" not in after
    for line in after.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) \w+ .+|\w+(\{(\w+="[^"]*",?)+\})? [0-9.e+-]+', line), line
