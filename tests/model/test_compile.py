"""Compiled and exported models. They run in their own process, because a tracer would see the enforced annotations."""

import subprocess
import sys
from pathlib import Path

import pytest

NAMES = ["plain", "stem", "sincos", "rotary registers", "many"]

HEADER = """
import sys
import torch
from model.small import OPTIONS, random_images, small_model

torch.set_num_threads(1)
assert "beartype" not in sys.modules

def difference(found, expected):
    return ((found - expected).abs().max() / expected.abs().max()).item()

for name in sys.argv[1:]:
    model = small_model(**OPTIONS[name], depth=2)
"""

COMPILE = """
    images = random_images(model, size=(8, 40))
    model(images).square().sum().backward()
    expected = {key: p.grad.clone() for key, p in model.named_parameters()}
    model.zero_grad()
    torch._dynamo.reset()
    explained = torch._dynamo.explain(model)(images)
    assert explained.graph_break_count == 0, (name, explained.break_reasons)
    torch._dynamo.reset()
    logits = torch.compile(model, fullgraph=True, backend="aot_eager")(images)
    logits.square().sum().backward()
    assert difference(logits, model(images)) < 1e-5, name
    scale = max(grad.abs().max() for grad in expected.values())
    for key, p in model.named_parameters():
        assert (p.grad - expected[key]).abs().max() < 1e-5 * scale, (name, key)
    print(name)
"""

EXPORT = """
    images = random_images(model, size=(8, 40))
    exported = torch.export.export(model, (images,), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},)).module()
    for batch in (1, 2, 5):
        images = random_images(model, batch=batch, size=(8, 40), seed=batch)
        with torch.no_grad():
            assert difference(exported(images), model(images)) < 1e-5, (name, batch)
    print(name)
"""


@pytest.mark.parametrize("script", [COMPILE, EXPORT], ids=["compiles in one graph", "exports with a dynamic batch"])
def test_traced_models_equal_the_eager_one(script):
    tests = Path(__file__).parents[1]
    command = [sys.executable, "-c", HEADER + script, *NAMES]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tests)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines() == NAMES
