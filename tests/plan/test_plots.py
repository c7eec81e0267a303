from pathlib import Path

import numpy as np
from PIL import Image

from vitkit.model.variants import get_config
from vitkit.plan.job import Job
from vitkit.plan.plots import plot_scaling
from vitkit.plan.simulate import Cluster, simulate_scaling
from vitkit.plan.step_time import Network, Rates


def test_the_figure_is_drawn(tmp_path: Path) -> None:
    cluster = Cluster(Rates(4e14), Network(25e9), memory=80e9)
    job = Job(get_config("vit_large_patch16_224"), 4096, precision="bf16", device="cuda")
    plot_scaling(job, cluster, simulate_scaling(job, cluster), tmp_path / "scale.png", "ViT-L/16")
    pixels = np.asarray(Image.open(tmp_path / "scale.png").convert("L"))
    assert pixels.shape > (800, 1000)
    assert 0.01 < (pixels < 128).mean() < 0.5
