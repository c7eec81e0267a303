"""What the tensors of timm's Vision Transformers do not show, by architecture.

timm's files contain no number of heads, no epsilon, no activation and no rotary frequencies: these are in its code. The
table holds them for every architecture that vitkit computes exactly; all others are refused by name. For a file that
does not name its architecture, families are compared by their tensors. If families with such tensors differ in a value,
the file is refused.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from vitkit.errors import WeightsError
from vitkit.weights.layouts import CLIP, HALF, IMAGENET

# width → heads of most published models
HEADS = {
    64: 2, 96: 3, 192: 3, 256: 4, 320: 5, 384: 6, 512: 8, 640: 10, 768: 12, 832: 13, 896: 14, 1024: 16, 1152: 16,
    1280: 16, 1408: 16, 1664: 16,
}  # fmt: skip
_SIGLIP = {768: 12, 1024: 16, 1152: 16, 1536: 16}
_CLIP = {width: HEADS[width] for width in (256, 512, 640, 768, 896, 1024, 1280, 1408, 1664)}
_DINOV3 = {192: 3, 384: 6, 768: 12, 1024: 16, 1280: 20, 4096: 32}
_EVA02 = dict(position="learned_rotary", rope_unit="patch", rope_base=1e4, rope_grid=(16, 16))
_MAP = dict(pooling="attention", pool_heads=8)
_TOKENS = dict(pooling="mean", final_norm="none")
_PE = dict(position="learned_rotary", rope_unit="patch", rope_base=1e4, norm_eps=1e-5)


@dataclass(frozen=True)
class Family:
    """Architectures that agree in everything that tensors do not show."""

    names: str  # a regular expression for the complete name
    config: Mapping[str, Any] = field(default_factory=dict)
    heads: Mapping[int, int] = field(default_factory=lambda: HEADS)
    # What their tensors show, by the names of `find_traits`; a tuple lists alternatives
    shown: Mapping[str, Any] = field(default_factory=dict)
    # Rotary models that rotate neighbouring channels: the order of the axes, "ij" (rows first) or "xy"
    rotary_order: str = ""

    @property
    def values(self) -> dict[str, Any]:
        return {"mlp": "gelu", "norm_eps": 1e-6, "position": "learned", **self.config}


_NO_CLASS = dict(cls=False, pool=False, rms=False)
_ROPE = dict(rope_unit="patch", rope_base=100.0)
FAMILIES = (
    Family(
        r"(vit_(tiny|small|base|large|huge|giant|gigantic)_patch\d+_\d+(_miil)?|vit_small_patch16_36x1_224"
        r"|vit_base_patch\d+_plus_\d+|test_vit|flexivit_(small|base|large)|deit3?_\w+_patch\d+_\d+|eva_large_patch14_\d+"
        r"|vit_\w+_dinov2|vit_\w+_tipsv2)",
        heads={**HEADS, 1536: 24},
        shown=dict(cls=True, table=True, pre_norm=False, pool=False, rms=False, sub="none", q_bias=False, norm=True),
    ),
    Family(r"vit_intern300m_patch14_448", {"final_norm": "none"}, {1024: 16}, dict(cls=True, norm=False, rms=False)),
    Family(r"test_vit3", {"pooling": "attention"}, shown=dict(cls=False, reg=True, pool=True, pre_norm=False)),
    Family(r"test_vit4", {"norm": "rms"}, {96: 3}, dict(rms=True, cls=False)),
    Family(r"vit_base_patch16_gap_224", heads={768: 16}, shown={**_NO_CLASS, "reg": False, "fc_norm": False}),
    Family(
        r"vit_(wee|little|medium|mediumd|betwixt|base|so150m2?|huge|giant)_patch\d+(_reg\d)?_(gap|map)_\d+|test_vit2",
        shown=dict(cls=False, rms=False, table=True),
    ),
    Family(r"vit_\w+_clip_quickgelu_\d+", {"mlp": "quick_gelu", "norm_eps": 1e-5}, _CLIP,
           dict(cls=True, pre_norm=True, gamma=False)),
    Family(r"vit_\w+_clip_\d+", {"norm_eps": 1e-5}, _CLIP, dict(cls=True, pre_norm=True, gamma=False)),
    Family(
        r"vit_(base_patch32_siglip(_gap)?_256|large_patch16_siglip(_gap)?_512|(so400m|giantopt)_patch16_siglip(_gap)?_\d+)",
        {"mlp": "gelu_tanh"}, _SIGLIP, dict(cls=False, reg=False, rms=False),
    ),
    Family(r"vit_\w+_siglip(_gap)?_\d+", heads=_SIGLIP, shown=dict(cls=False, reg=False, rms=False)),
    Family(r"aimv2_\w+_patch14_\d+", {"norm": "rms", "norm_eps": 1e-5}, {1024: 8, 1536: 12, 2048: 16, 3072: 24},
           dict(cls=False, rms=True)),
    Family(r"beit3_\w+_patch\d+_\d+", {"norm_eps": 1e-5}, shown=dict(cls=True, sub="all", gated=False)),
    Family(r"eva_giant_patch14(_clip)?_\d+", heads={1408: 16},
           shown=dict(cls=True, q_bias=True, gated=False, table=True)),
    Family(r"eva02_(tiny|small|base|large)_patch\d+(_clip)?_\d+", _EVA02,
           shown=dict(cls=True, gated=True, q_bias=True, table=True),
           rotary_order="ij"),
    Family(r"vit_\w+_(dinov3(_qkvb)?|lingbot)", {"position": "rotary", "norm_eps": 1e-5, "pooling": "mean"},
           _DINOV3, dict(table=False)),
    Family(r"vit_\w+_patch16_rope_224", {"position": "rotary", **_ROPE}, shown=dict(table=False), rotary_order="xy"),
    Family(r"vit_\w+_patch16_rope_ape_224", {"position": "learned_rotary", **_ROPE},
           shown=dict(cls=True, table=True, gamma=True, pre_norm=False, q_bias=False), rotary_order="xy"),
    Family(r"vit_mediumd?_patch16_rope_reg1_gap_256", {**_EVA02, "position": "rotary"}, shown=dict(table=False),
           rotary_order="ij"),
    *(
        Family(rf"vit_pe_{names}", {**_PE, "rope_grid": (side, side), "rope_offset": offset, **pool}, heads,
               dict(pre_norm=True, table=True), rotary_order="xy")
        for names, side, offset, pool, heads in (
            (r"core_base_patch16_224", 14, 1.0, _MAP, HEADS),
            (r"core_(tiny|small|large)_patch\d+_\d+", 24, 1.0, _MAP, HEADS),
            (r"core_gigantic_patch14_448", 32, 0.0, _MAP, {1536: 16}),
            (r"(lang|spatial)_gigantic_patch14_448", 32, 0.0, _TOKENS, {1536: 16}),
            (r"(lang|spatial)_(tiny|small|base|large)_patch\d+_\d+", 32, 1.0, _TOKENS, HEADS),
        )
    ),
)  # fmt: skip

# (regular expression, reason): computed by layers that model/ does not have
UNSUPPORTED = (
    (r"\w+_rpn_\w+", "residual post-norm"),
    (r"eva02_enormous_\w+", "post-norm blocks"),
    (r"vit_\w+_18x2_\w+", "parallel branches"),
    (r"vit_\w+_xp_\w+|vit_pwee_\w+", "attention and MLP in parallel"),
    (r"vit_d(little|wee|pwee)_\w+", "differential attention"),
    (r"\w+_rope_mixed_\w+", "learned rotary frequencies"),
    (r"\w+_sapiens2", "grouped-query attention"),
    (r"beit(v2)?_\w+|vit_s?relpos_\w+", "relative position biases"),
)


# (regular expression, mean and standard deviation) of architectures whose published weights all agree in them
NORMALISATION = (
    (r"deit3?_\w+|vit_\w+_dinov2|beit3_\w+|vit_intern300m_\w+|vit_\w+_rope_(ape_)?224", IMAGENET),
    (r"\w+_siglip\w*|vit_pe_\w+|vit_mediumd?_patch16_rope_\w+|test_vit\d?", HALF),
    (r"aimv2_\w+|vit_\w+_clip_quickgelu_\d+|eva02_\w+", CLIP),
)


def normalisation(name: str) -> Mapping[str, Any] | None:
    """Return mean and standard deviation of all published weights of an architecture; None if they differ."""
    found = next((values for pattern, values in NORMALISATION if re.fullmatch(pattern, name)), None)
    return found and {key: found[key] for key in ("mean", "std")}


def check_name(name: str, traits: Mapping[str, Any], where: object) -> None:
    """Raise if a checkpoint of this architecture would have other tensors."""
    if not _shows(by_name(name, where), traits):
        raise WeightsError(f"{where} is not a {name}: a checkpoint of this architecture has other tensors")


def plain_name(name: str) -> str:
    """Return the name of an architecture without timm/ before it and the tag of its weights after it."""
    return name.removeprefix("timm/").split(".")[0]


def by_name(name: str, where: object) -> Family:
    """Return the family of one of timm's architecture names; raise if vitkit does not compute it exactly."""
    for family in FAMILIES:
        if re.fullmatch(family.names, name) and not _reason(name):
            return family
    reason = _reason(name) or "it is not in the table of architectures that are verified"
    raise WeightsError(f"{where}: timm's architecture {name} is not supported ({reason}): use timm for it")


def _reason(name: str) -> str | None:
    return next((reason for pattern, reason in UNSUPPORTED if re.fullmatch(pattern, name)), None)


def name_of_file(stem: str, traits: Mapping[str, Any]) -> str | None:
    """Return the architecture that a file name begins with, such as deit_tiny_patch16_224.fb_in1k.

    Return None if there is none, or if the tensors of the file cannot be of this architecture.
    """
    for end in range(len(stem), 0, -1):
        families = [f for f in FAMILIES if re.fullmatch(f.names, stem[:end])]
        if families and (end == len(stem) or stem[end] in "._-"):
            return stem[:end] if _shows(families[0], traits) else None
    return None


def _shows(family: Family, traits: Mapping[str, Any]) -> bool:
    return all(traits[trait] == value for trait, value in family.shown.items())


def find_traits(names: Collection[str], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return what the tensors of a checkpoint in timm's layout show of its architecture."""

    def has(*keys: str) -> bool:
        return any(key in names for key in keys)

    fc1, fc2 = (tensors.get(f"blocks.0.mlp.fc{i}.weight") for i in (1, 2))
    return {
        "cls": has("cls_token"),
        "reg": has("reg_token"),
        "table": has("pos_embed"),
        "pre_norm": has("norm_pre.weight"),
        "fc_norm": has("fc_norm.weight"),
        "norm": has("norm.weight", "fc_norm.weight"),
        "pool": has("attn_pool.latent"),
        "gamma": has("blocks.0.gamma_1"),
        "rms": not has("blocks.0.norm1.bias"),
        "sub": "all" if has("blocks.0.attn.norm.weight") else "mlp" if has("blocks.0.mlp.norm.weight") else "none",
        "q_bias": has("blocks.0.attn.q_bias", "blocks.0.attn.q_proj.bias"),
        "gated": fc1 is not None and fc2 is not None and fc1.shape[0] == 2 * fc2.shape[-1],
    }


def by_tensors(traits: Mapping[str, Any], width: int, given: Mapping[str, Any], where: object) -> Family:
    """Return the family that has such tensors; raise if none has, or if several differ in a value not `given`."""
    if {"mlp", "norm_eps", "position"} <= given.keys() and "rotary" not in given["position"]:
        return Family("")  # everything but the heads is given
    alike = [f for f in FAMILIES if _shows(f, traits)]
    alike = [f for f in alike if all(f.values.get(key, given[key]) == given[key] for key in given)] or alike
    alike = [f for f in alike if width in f.heads] or alike
    options = [{**f.values, "rotary_order": f.rotary_order, "heads": f.heads.get(width)} for f in alike]
    keys = dict.fromkeys(key for option in options for key in option)
    differing = [key for key in keys if key not in given and len({option.get(key) for option in options}) > 1]
    if not options or differing:
        unknown = ", ".join(differing or ("heads", "mlp", "norm_eps", "position")).replace("_", " ")
        raise WeightsError(
            f"{where}: the tensors do not show {unknown}: add the config.json of the weights, or name timm's "
            "architecture (architecture=NAME, `vitkit convert … --architecture NAME`)"
        )
    return alike[0]
