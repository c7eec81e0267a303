"""Benchmarks speed and memory against other libraries, in interleaved rounds of one run."""

from vitkit.bench.harness import BenchResult
from vitkit.bench.inference import bench_inference
from vitkit.bench.loading import bench_loading
from vitkit.bench.training import bench_training

__all__ = ["BenchResult", "bench_inference", "bench_loading", "bench_training"]
