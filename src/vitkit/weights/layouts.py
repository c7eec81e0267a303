"""Names of a ViT's tensors in other libraries: one table per layout, read in both directions.

A row maps tensor names of a layout (theirs) to a tensor name of vitkit (ours, which are timm's). `{i}` is the number of
a block, `{body}` the prefix that Hugging Face puts before everything but the classifier. Several of their tensors may
form one of ours. `transform` names an invertible transform of state_dict.py. If several rows have the same `ours`,
import takes the first whose tensors all exist, export the first whose `when` fits the model.
To add a layout, add a table: no other code knows its names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vitkit.data.preprocess import IMAGENET_MEAN, IMAGENET_STD


@dataclass(frozen=True)
class KeyRule:
    ours: str
    theirs: tuple[str, ...]
    transform: str = "same"
    when: str = ""  # "plain MLP" or "gated MLP": only for such models; "import": an older form that is never written


@dataclass(frozen=True)
class Layout:
    name: str
    description: str
    rows: tuple[KeyRule, ...]
    # (pattern, replacement): applied to their names before the rows are tried
    aliases: tuple[tuple[str, str], ...] = ()
    # (pattern, reason): tensors that a classifier does not need
    ignored_keys: tuple[tuple[str, str], ...] = ()
    # (pattern, reason): our tensors that are zero and absent in models with a norm before the blocks
    zero_keys: tuple[tuple[str, str], ...] = ()
    # Config values that are fixed in the library's code and not visible in the tensors
    config: Mapping[str, Any] = field(default_factory=dict)
    # Preprocessing to assume if no file next to the weights defines it
    preprocess: Mapping[str, Any] = field(default_factory=dict)
    # The tensor and axis whose length is the number of heads
    heads_axis: tuple[str, int] | None = None
    body: str = ""  # the prefix of everything but the classifier
    # Config values that the layout can store: values, types or ranges. A field that is not listed must have its
    # default, unless shapes show it (`state_dict.py`). None: import only
    supports: Mapping[str, tuple[Any, ...]] | None = None
    # Rewrites of state_dict.py that bring a model into a form that the layout can store
    rewrites: tuple[str, ...] = ("sincos positions to table", "zero class position")


def row(ours: str, *theirs: str, transform: str = "same", when: str = "") -> tuple[KeyRule, ...]:
    return (KeyRule(ours, theirs, transform, when),)


def pair(ours: str, *theirs: str, transform: str = "same", when: str = "") -> tuple[KeyRule, ...]:
    """Return the key rules for weight and bias of a linear layer or a norm."""
    return tuple(KeyRule(f"{ours}.{p}", tuple(f"{t}.{p}" for t in theirs), transform, when) for p in ("weight", "bias"))


def own_names(*names: str) -> tuple[KeyRule, ...]:
    """Return the key rules for tensors and layers that have the same names in the layout as in vitkit."""
    tensors = ("_token", ".gamma", ".latent", "pos_embed")
    return tuple(rule for name in names for rule in (row if name.endswith(tensors) else pair)(name, name))


def flax_linear(ours: str, *theirs: str, transform: str = "kernel", bias: str = "same") -> tuple[KeyRule, ...]:
    """Return the key rules for a linear layer of Flax, which calls its weight `kernel`."""
    return (
        KeyRule(f"{ours}.weight", tuple(f"{t}/kernel" for t in theirs), transform),
        KeyRule(f"{ours}.bias", tuple(f"{t}/bias" for t in theirs), bias),
    )


def flax_norm(ours: str, theirs: str) -> tuple[KeyRule, ...]:
    """Return the key rules for a LayerNorm of Flax, which calls its weight `scale`."""
    return KeyRule(f"{ours}.weight", (f"{theirs}/scale",)), KeyRule(f"{ours}.bias", (f"{theirs}/bias",))


IMAGENET = dict(mean=IMAGENET_MEAN, std=IMAGENET_STD, crop_fraction=0.875, interpolation="bicubic")
HALF = dict(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
CLIP = dict(mean=(0.48145466, 0.4578275, 0.40821073), std=(0.26862954, 0.26130258, 0.27577711), crop_fraction=1.0)
GELU = dict(mlp="gelu", norm_eps=1e-6)

PLAIN: dict[str, tuple[Any, ...]] = {
    "stem": ((),), "class_token": (True,), "distillation": (False,), "registers": (0,), "position": ("learned",),
    "pre_norm": (False,), "qk_norm": (False,), "layer_scale": (None,), "pooling": ("cls",), "final_norm": ("tokens",),
    "head_hidden": (0,), "mlp": ("gelu",),
}  # fmt: skip

_OWN_BLOCK = own_names(
    "blocks.{i}.norm1", "blocks.{i}.attn.qkv", "blocks.{i}.attn.q_norm", "blocks.{i}.attn.k_norm",
    "blocks.{i}.attn.proj", "blocks.{i}.ls1.gamma", "blocks.{i}.norm2", "blocks.{i}.ls2.gamma",
)  # fmt: skip
_OWN_MLP = own_names("blocks.{i}.mlp.fc1", "blocks.{i}.mlp.fc2")

TIMM = Layout(
    "timm",
    "timm; also DeiT (distilled or not), MAE, DINO, plain DINOv2 and vitkit itself",
    (
        *own_names("cls_token", "dist_token", "reg_token", "pos_embed", "patch_embed.proj", "norm_pre"),
        *_OWN_BLOCK,
        *_OWN_MLP,
        *own_names("norm", *(f"attn_pool.{p}" for p in ("latent", "q", "kv", "proj", "norm", "mlp.fc1", "mlp.fc2"))),
        *own_names("fc_norm", "pre_logits.fc", "head", "head_dist"),
    ),
    aliases=((r"\.gamma_(\d)$", r".ls\1.gamma"),),  # DeiT III
    ignored_keys=(
        (r"^mask_token$|^decoder_", "MAE's mask token and decoder, used in pre-training only"),
        (r"^head\.(mlp|last_layer)\.", "DINO's projection head, used in pre-training only"),
    ),
    config=GELU,
    preprocess=IMAGENET,
    supports={"stem": ((),), "position": ("learned", "none"), "pooling": ("cls", "mean", "mean_all", "attention"),
           "head_hidden": (0,), "norm_eps": (1e-6, 1e-5), "class_token": (bool,), "distillation": (bool,),
           "registers": (0, int), "pre_norm": (bool,), "qk_norm": (bool,), "layer_scale": (None, float),
           "mlp": ("gelu", "gelu_tanh", "quick_gelu", "swiglu"), "final_norm": ("tokens", "pooled")},
    zero_keys=((r"^patch_embed\.proj\.bias$", "timm has no patch bias before a norm"),),
    rewrites=("sincos positions to table", "class position into token", "patch bias into positions"),
)  # fmt: skip

DINOV2 = Layout(
    "dinov2",
    "DINOv2 as published by its authors",
    (
        *row("cls_token", "cls_token"),
        *row("reg_token", "register_tokens"),
        *row("pos_embed", "pos_embed"),
        *pair("patch_embed.proj", "patch_embed.proj"),
        *_OWN_BLOCK,
        *pair("blocks.{i}.mlp.fc1", "blocks.{i}.mlp.w12", when="gated MLP"),
        *pair("blocks.{i}.mlp.fc2", "blocks.{i}.mlp.w3", when="gated MLP"),
        *_OWN_MLP,
        *pair("norm", "norm"),
    ),
    aliases=((r"^blocks\.\d+\.(\d+)\.", r"blocks.\1."),),  # blocks grouped into chunks by the training code
    ignored_keys=((r"^mask_token$", "masked pre-training"),
           (r"^(dino_head|ibot_head)\.", "DINOv2's heads, used in pre-training only")),
    config=GELU,
    preprocess=IMAGENET,
    supports={**PLAIN, "registers": (int,), "layer_scale": (float,), "mlp": ("gelu", "swiglu"), "num_classes": (0,),
           "norm_eps": (1e-6,)},
)  # fmt: skip

_HF_EMBED = (
    *row("cls_token", "{body}embeddings.cls_token"),
    *row("pos_embed", "{body}embeddings.position_embeddings"),
    *pair("patch_embed.proj", "{body}embeddings.patch_embeddings.projection"),
)
_L = "{body}encoder.layer.{i}."
_HF_QKV = tuple(_L + f"attention.attention.{p}" for p in ("query", "key", "value"))
_HF_VIT = (
    *_HF_EMBED,
    *pair("blocks.{i}.norm1", _L + "layernorm_before"),
    *pair("blocks.{i}.attn.qkv", *_HF_QKV, transform="concat"),
    *pair("blocks.{i}.attn.proj", _L + "attention.output.dense"),
    *pair("blocks.{i}.norm2", _L + "layernorm_after"),
    *pair("blocks.{i}.mlp.fc1", _L + "intermediate.dense"),
    *pair("blocks.{i}.mlp.fc2", _L + "output.dense"),
    *pair("norm", "{body}layernorm"),
)
# transformers 5 uses other names in memory than in its files
_HF_ALIASES = (
    (r"^(vit|deit|dinov2|dinov2_with_registers)\.", ""),
    *((rf"\.attention\.{p[0]}_proj\.", f".attention.attention.{p}.") for p in ("query", "key", "value")),
    (r"\.attention\.o_proj\.", ".attention.output.dense."),
)
_HF_VIT_ALIASES = (
    *_HF_ALIASES,
    (r"^layers\.", "encoder.layer."),
    (r"^(encoder\.layer\.\d+)\.mlp\.fc1\.", r"\1.intermediate.dense."),
    (r"^(encoder\.layer\.\d+)\.mlp\.fc2\.", r"\1.output.dense."),
)
_HF_IGNORED = (
    (r"^pooler\.", "ViTModel's pooler, which a classifier does not use"),
    (r"mask_token$|^decoder\.", "masked pre-training"),
)
_HF_ACTS = ("gelu", "gelu_tanh", "quick_gelu")

HF_VIT = Layout(
    "hf-vit",
    "transformers: ViTForImageClassification, ViTModel, ViTMAE",
    (*_HF_VIT, *pair("head", "classifier")),
    aliases=_HF_VIT_ALIASES,
    ignored_keys=_HF_IGNORED,
    config=dict(mlp="gelu", norm_eps=1e-12),
    preprocess={**HALF, "fit": "squash", "crop_fraction": 1.0, "interpolation": "bilinear"},
    body="vit.",
    supports={**PLAIN, "mlp": _HF_ACTS},
)
HF_DEIT = replace(
    HF_VIT,
    name="hf-deit",
    description="transformers: DeiTForImageClassificationWithTeacher",
    rows=(
        *_HF_VIT,
        *row("dist_token", "{body}embeddings.distillation_token"),
        *pair("head", "cls_classifier"),
        *pair("head_dist", "distillation_classifier"),
    ),
    preprocess=IMAGENET,
    body="deit.",
    supports={**PLAIN, "distillation": (True,), "mlp": _HF_ACTS},
)
HF_DINOV2 = Layout(
    "hf-dinov2",
    "transformers: Dinov2Model, Dinov2ForImageClassification",
    (
        *_HF_EMBED,
        *pair("blocks.{i}.norm1", _L + "norm1"),
        *pair("blocks.{i}.attn.qkv", *_HF_QKV, transform="concat"),
        *pair("blocks.{i}.attn.proj", _L + "attention.output.dense"),
        *row("blocks.{i}.ls1.gamma", _L + "layer_scale1.lambda1"),
        *pair("blocks.{i}.norm2", _L + "norm2"),
        *pair("blocks.{i}.mlp.fc1", _L + "mlp.fc1", when="plain MLP"),
        *pair("blocks.{i}.mlp.fc2", _L + "mlp.fc2", when="plain MLP"),
        *pair("blocks.{i}.mlp.fc1", _L + "mlp.weights_in", when="gated MLP"),
        *pair("blocks.{i}.mlp.fc2", _L + "mlp.weights_out", when="gated MLP"),
        *pair("blocks.{i}.mlp.fc1", _L + "mlp.gate_proj", _L + "mlp.up_proj", transform="concat", when="import"),
        *pair("blocks.{i}.mlp.fc2", _L + "mlp.down_proj", when="import"),
        *row("blocks.{i}.ls2.gamma", _L + "layer_scale2.lambda1"),
        *pair("norm", "{body}layernorm"),
        *pair("head", "classifier"),
    ),
    aliases=_HF_ALIASES,
    ignored_keys=_HF_IGNORED,
    config=GELU,
    preprocess=IMAGENET,
    body="dinov2.",
    supports={**PLAIN, "layer_scale": (float,), "pooling": ("cls", "cls_mean"), "mlp": (*_HF_ACTS, "swiglu")},
    rewrites=("sincos positions to table", "zero class position", "widen classifier to token and mean"),
)  # fmt: skip

HF_DINOV2_REGISTERS = replace(
    HF_DINOV2,
    name="hf-dinov2-registers",
    description="transformers: Dinov2WithRegistersModel, Dinov2WithRegistersForImageClassification",
    rows=(*HF_DINOV2.rows, *row("reg_token", "{body}embeddings.register_tokens")),
    body="dinov2_with_registers.",
    supports={**(HF_DINOV2.supports or {}), "registers": (range(1, 1 << 30),)},
)

_D = "layer.{i}."
HF_DINOV3 = Layout(
    "hf-dinov3",
    "transformers: DINOv3ViTModel",
    (
        *row("cls_token", "embeddings.cls_token"),
        *row("reg_token", "embeddings.register_tokens"),
        *pair("patch_embed.proj", "embeddings.patch_embeddings"),
        *pair("blocks.{i}.norm1", _D + "norm1"),
        *pair("blocks.{i}.attn.qkv", *(_D + f"attention.{p}_proj" for p in "qkv"), transform="concat"),
        *row("blocks.{i}.attn.qkv.bias", _D + "attention.q_proj.bias", _D + "attention.v_proj.bias",
             transform="concat around zero", when="import"),  # as published: keys have no bias
        *pair("blocks.{i}.attn.proj", _D + "attention.o_proj"),
        *row("blocks.{i}.ls1.gamma", _D + "layer_scale1.lambda1"),
        *pair("blocks.{i}.norm2", _D + "norm2"),
        *pair("blocks.{i}.mlp.fc1", _D + "mlp.gate_proj", _D + "mlp.up_proj", transform="concat", when="gated MLP"),
        *pair("blocks.{i}.mlp.fc1", _D + "mlp.up_proj", when="plain MLP"),
        *pair("blocks.{i}.mlp.fc2", _D + "mlp.down_proj"),
        *row("blocks.{i}.ls2.gamma", _D + "layer_scale2.lambda1"),
        *pair("norm", "norm"),
    ),
    ignored_keys=((r"mask_token$", "masked pre-training"),),
    config=dict(mlp="gelu", norm_eps=1e-5, position="rotary"),
    preprocess={**IMAGENET, "crop_fraction": 1.0},
    supports={**PLAIN, "registers": (int,), "layer_scale": (float,), "mlp": (*_HF_ACTS, "swiglu"),
              "position": ("rotary",), "num_classes": (0,)},
    rewrites=("empty register tensor",),
)  # fmt: skip

_T = "encoder.layers.encoder_layer_{i}."
TORCHVISION = Layout(
    "torchvision",
    "torchvision: vit_b_16 and its siblings",
    (
        *row("cls_token", "class_token"),
        *row("pos_embed", "encoder.pos_embedding"),
        *pair("patch_embed.proj", "conv_proj"),
        *pair("blocks.{i}.norm1", _T + "ln_1"),
        *row("blocks.{i}.attn.qkv.weight", _T + "self_attention.in_proj_weight"),
        *row("blocks.{i}.attn.qkv.bias", _T + "self_attention.in_proj_bias"),
        *pair("blocks.{i}.attn.proj", _T + "self_attention.out_proj"),
        *pair("blocks.{i}.norm2", _T + "ln_2"),
        *pair("blocks.{i}.mlp.fc1", _T + "mlp.0"),
        *pair("blocks.{i}.mlp.fc2", _T + "mlp.3"),
        *pair("norm", "encoder.ln"),
        *pair("pre_logits.fc", "heads.pre_logits"),
        *pair("head", "heads.head"),
    ),
    aliases=((r"\.mlp\.linear_1\.", ".mlp.0."), (r"\.mlp\.linear_2\.", ".mlp.3.")),  # before 0.13
    config=GELU,
    preprocess={**IMAGENET, "interpolation": "bilinear"},
    supports={**PLAIN, "num_classes": (range(1, 1 << 30),), "in_channels": (3,), "qkv_bias": (True,),
              "head_hidden": (int,), "norm_eps": (1e-6,)},
)  # fmt: skip


def _google(attention: str, mlp: str, norm2: str, position: str) -> tuple[KeyRule, ...]:
    b = "Transformer/encoderblock_{i}/"
    qkv = [f"{b}{attention}/{p}" for p in ("query", "key", "value")]
    return (
        *row("cls_token", "cls"),
        *row("pos_embed", position),
        *flax_linear("patch_embed.proj", "embedding", transform="conv"),
        *flax_norm("blocks.{i}.norm1", b + "LayerNorm_0"),
        *flax_linear("blocks.{i}.attn.qkv", *qkv, transform="heads in", bias="heads bias"),
        *flax_linear("blocks.{i}.attn.proj", f"{b}{attention}/out", transform="heads out"),
        *flax_norm("blocks.{i}.norm2", b + norm2),
        *flax_linear("blocks.{i}.mlp.fc1", f"{b}{mlp}/Dense_0"),
        *flax_linear("blocks.{i}.mlp.fc2", f"{b}{mlp}/Dense_1"),
        *flax_norm("norm", "Transformer/encoder_norm"),
        *flax_linear("pre_logits.fc", "pre_logits"),
        *flax_linear("head", "head"),
    )


_GOOGLE = {**PLAIN, "qkv_bias": (True,), "head_hidden": (int,), "mlp": ("gelu", "gelu_tanh"), "norm_eps": (1e-6,)}

NPZ = Layout(
    "npz",
    "Google's .npz: the original ViT and AugReg",
    _google("MultiHeadDotProductAttention_1", "MlpBlock_3", "LayerNorm_2", "Transformer/posembed_input/pos_embedding"),
    aliases=((r"^opt/target/", ""),),
    config=GELU,
    preprocess={**HALF, "crop_fraction": 0.9},
    heads_axis=("Transformer/encoderblock_0/MultiHeadDotProductAttention_1/query/kernel", 1),
    supports=_GOOGLE,
)
BIG_VISION = Layout(
    "big_vision",
    "Google's .npz of big_vision",
    _google("MultiHeadDotProductAttention_0", "MlpBlock_0", "LayerNorm_1", "pos_embedding"),
    aliases=((r"^params/(img/)?", ""),),
    config=GELU,
    preprocess={**HALF, "crop_fraction": 0.9},
    heads_axis=("Transformer/encoderblock_0/MultiHeadDotProductAttention_0/query/kernel", 1),
)

_C = "transformer.resblocks.{i}."
OPENCLIP = Layout(
    "openclip",
    "the vision tower of OpenAI's CLIP and of OpenCLIP",
    (
        *row("cls_token", "class_embedding", transform="token"),
        *row("pos_embed", "positional_embedding", transform="table"),
        *row("patch_embed.proj.weight", "conv1.weight"),
        *pair("norm_pre", "ln_pre"),
        *pair("blocks.{i}.norm1", _C + "ln_1"),
        *row("blocks.{i}.attn.qkv.weight", _C + "attn.in_proj_weight"),
        *row("blocks.{i}.attn.qkv.bias", _C + "attn.in_proj_bias"),
        *pair("blocks.{i}.attn.proj", _C + "attn.out_proj"),
        *row("blocks.{i}.ls1.gamma", _C + "ls_1.gamma"),
        *pair("blocks.{i}.norm2", _C + "ln_2"),
        *pair("blocks.{i}.mlp.fc1", _C + "mlp.c_fc"),
        *pair("blocks.{i}.mlp.fc2", _C + "mlp.c_proj"),
        *row("blocks.{i}.ls2.gamma", _C + "ls_2.gamma"),
        *pair("norm", "ln_post"),
        *row("head.weight", "proj", transform="kernel"),
    ),
    # the text tower uses the same names without "visual."
    aliases=((r"^(?!visual\.)", "text side: "), (r"^visual\.", "")),
    ignored_keys=((r"^text side: ", "CLIP's text tower"),),
    zero_keys=((r"^patch_embed\.proj\.bias$|^head\.bias$", "CLIP has no such bias"),),
    config=dict(mlp="gelu", norm_eps=1e-5),
    preprocess=CLIP,
)
_H = "vision_model.encoder.layers.{i}."
HF_CLIP = Layout(
    "hf-clip",
    "transformers: the vision tower of CLIPModel",
    (
        *row("cls_token", "vision_model.embeddings.class_embedding", transform="token"),
        *row("pos_embed", "vision_model.embeddings.position_embedding.weight", transform="table"),
        *row("patch_embed.proj.weight", "vision_model.embeddings.patch_embedding.weight"),
        *pair("norm_pre", "vision_model.pre_layrnorm"),  # sic
        *pair("blocks.{i}.norm1", _H + "layer_norm1"),
        *pair("blocks.{i}.attn.qkv", *(_H + f"self_attn.{p}_proj" for p in "qkv"), transform="concat"),
        *pair("blocks.{i}.attn.proj", _H + "self_attn.out_proj"),
        *pair("blocks.{i}.norm2", _H + "layer_norm2"),
        *pair("blocks.{i}.mlp.fc1", _H + "mlp.fc1"),
        *pair("blocks.{i}.mlp.fc2", _H + "mlp.fc2"),
        *pair("norm", "vision_model.post_layernorm"),
        *row("head.weight", "visual_projection.weight"),
    ),
    ignored_keys=(
        (r"^text_model\.|^text_projection\.|^logit_scale$", "CLIP's text tower"),
        (r"position_ids$", "position indices 0, 1, 2 …"),
    ),
    zero_keys=((r"^patch_embed\.proj\.bias$|^head\.bias$", "CLIP has no such bias"),),
    config=dict(mlp="quick_gelu", norm_eps=1e-5),
    preprocess=CLIP,
)

# In order of preference, for checkpoints that fit several
LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        TIMM, DINOV2, HF_VIT, HF_DEIT, HF_DINOV2, HF_DINOV2_REGISTERS, HF_DINOV3, HF_CLIP, TORCHVISION, NPZ,
        BIG_VISION, OPENCLIP,
    )
}  # fmt: skip

# Names for `vitkit convert --to`: the first layout that supports the model is written
TARGETS = {
    "timm": (TIMM,),
    "dinov2": (DINOV2,),
    "hf": (HF_VIT, HF_DEIT, HF_DINOV2, HF_DINOV2_REGISTERS, HF_DINOV3),
    "torchvision": (TORCHVISION,),
    "npz": (NPZ,),
}
