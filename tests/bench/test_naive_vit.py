import torch
from torch.testing import assert_close

from tests.bench import TINY
from vitkit.bench.naive_vit import NaiveViT
from vitkit.model import ViT, create_model


def copy_weights(model: ViT, naive: NaiveViT) -> None:
    """Copy the weights of a ViT, with q, k and v split by head."""
    c = model.config
    state = model.state_dict()
    new = {
        "embed.weight": state["patch_embed.proj.weight"].flatten(1),
        "embed.bias": state["patch_embed.proj.bias"],
        "cls": state["cls_token"],
        "positions": state["pos_embed"],
        "norm.weight": state["norm.weight"],
        "norm.bias": state["norm.bias"],
        "classifier.weight": state["head.weight"],
        "classifier.bias": state["head.bias"],
    }
    for i in range(c.depth):
        old, layer = f"blocks.{i}", f"layers.{i}"
        for kind in ("weight", "bias"):
            qkv = state[f"{old}.attn.qkv.{kind}"].unflatten(0, (3, c.heads, c.head_width))
            for head in range(c.heads):
                for j, name in enumerate(("query", "key", "value")):
                    new[f"{layer}.heads.{head}.{name}.{kind}"] = qkv[j, head]
            new[f"{layer}.proj.{kind}"] = state[f"{old}.attn.proj.{kind}"]
            new[f"{layer}.mlp.0.{kind}"] = state[f"{old}.mlp.fc1.{kind}"]
            new[f"{layer}.mlp.2.{kind}"] = state[f"{old}.mlp.fc2.{kind}"]
            for norm in ("norm1", "norm2"):
                new[f"{layer}.{norm}.{kind}"] = state[f"{old}.{norm}.{kind}"]
    naive.load_state_dict(new)


def test_the_naive_vit_computes_the_same_logits() -> None:
    model, naive = create_model(TINY.replace(norm_eps=1e-5), seed=0).eval(), NaiveViT(TINY).eval()
    copy_weights(model, naive)
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert_close(naive(images), model(images), rtol=1e-4, atol=1e-5)
