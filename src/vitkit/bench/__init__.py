"""Speed and memory, beside the libraries that people use: everything takes turns in one run."""

from vitkit.bench.harness import Row
from vitkit.bench.inference import inference
from vitkit.bench.training import training

__all__ = ["Row", "inference", "training"]
