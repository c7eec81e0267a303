from vitkit.model import create_model
from vitkit.weights.layouts import LAYOUTS

from .conftest import CONFIG


def test_every_row_of_every_layout_names_one_of_our_tensors():
    options = [dict(), dict(distillation=True), dict(registers=1, qk_norm=True, layer_scale=0.1, pre_norm=True),
               dict(pooling="attention", final_norm="pooled", head_hidden=5),
               dict(patch_norm=True, sub_norm="all")]  # fmt: skip
    ours = {key for o in options for key in create_model({**CONFIG, "depth": 1, **o}, device="meta").state_dict()}
    for layout in LAYOUTS.values():
        assert {row.ours.replace("{i}", "0") for row in layout.rows} <= ours, layout.name
