import pytest

from vitkit.bench.harness import check_names, run_benchmark, summarize_times
from vitkit.errors import UnknownNameError, WorkError


def test_times_are_summarized_relative_to_the_first_competitor() -> None:
    times = {"a": [0.5, 0.25, 0.5], "b": [1.0] * 20 + [9.0]}
    a, b = summarize_times(times, images=8, seconds_at_peak=0.05, memory={"b": 100.0})
    assert (a.images_per_s, a.ms, a.p95_ms, a.ratio, a.peak_share) == pytest.approx((16, 500, 500, 1, 0.8))
    assert (b.images_per_s, b.ms, b.p95_ms, b.ratio, b.peak_share) == pytest.approx((8, 1000, 1000, 0.5, 0.4))
    assert (a.memory_mib, b.memory_mib) == (None, 100.0)
    assert list(a.to_dict()) == ["name", "images_per_s", "ms", "p95_ms", "ratio", "peak_share", "memory_mib"]


def test_competitors_that_fail_at_their_first_call_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vitkit.bench.harness.TURN_SECONDS", 0.0)
    monkeypatch.setattr("vitkit.bench.harness.peak_macs_per_s", lambda: 1.0)

    def prepare(name: str, job: str) -> object:
        assert job == "job"

        def run() -> None:
            if name == "bad":
                raise WorkError("no compiler\nand more")

        return run

    results, missing = run_benchmark(["good", "bad"], prepare, "job", images=1, macs=1.0, rounds=2, memory=False)
    assert [result.name for result in results] == ["good"]
    assert missing == {"bad": "no compiler"}


def test_an_unknown_library_is_an_error_that_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="timm"):
        check_names(["tim"], ["timm", "hf"])
