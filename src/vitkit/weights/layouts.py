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
    # Width → heads of all published models of the layout; other widths have to be given
    heads: Mapping[int, int] = field(default_factory=dict)
    # Config values that differ between models of the layout, so that the config file or the caller must give them
    required: tuple[str, ...] = ()
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

_OWN_BLOCK = own_names(
    "blocks.{i}.norm1", "blocks.{i}.attn.qkv", "blocks.{i}.attn.q_norm", "blocks.{i}.attn.k_norm",
    "blocks.{i}.attn.proj", "blocks.{i}.ls1.gamma", "blocks.{i}.norm2", "blocks.{i}.ls2.gamma",
)  # fmt: skip
_OWN_MLP = own_names("blocks.{i}.mlp.fc1", "blocks.{i}.mlp.fc2")
_EVA_QKV = tuple(f"blocks.{{i}}.attn.{p}_proj.weight" for p in "qkv")

TIMM = Layout(
    "timm",
    "timm; also DeiT (distilled or not), MAE, DINO, plain DINOv2 and vitkit itself",
    (
        *own_names("cls_token", "dist_token", "reg_token", "pos_embed", "patch_embed.proj", "patch_embed.norm"),
        *own_names("norm_pre"),
        *_OWN_BLOCK,
        *_OWN_MLP,
        *own_names("blocks.{i}.attn.norm", "blocks.{i}.mlp.norm"),
        # EVA: queries, keys and values may be separate, and keys have no bias; BEiT-3 and AIMv2: a gate of its own
        *row("blocks.{i}.attn.qkv.weight", *_EVA_QKV, transform="concat", when="import"),
        *row("blocks.{i}.attn.qkv.bias", "blocks.{i}.attn.q_bias", "blocks.{i}.attn.v_bias",
             transform="concat around zero", when="import"),
        *row("blocks.{i}.attn.qkv.bias", "blocks.{i}.attn.q_proj.bias", "blocks.{i}.attn.v_proj.bias",
             transform="concat around zero", when="import"),
        *pair("blocks.{i}.mlp.fc1", "blocks.{i}.mlp.fc1_g", "blocks.{i}.mlp.fc1_x", transform="concat", when="import"),
        *own_names("norm", *(f"attn_pool.{p}" for p in ("latent", "q", "kv", "proj", "norm", "mlp.fc1", "mlp.fc2"))),
        *own_names("fc_norm", "pre_logits.fc", "head", "head_dist"),
    ),
    aliases=((r"\.gamma_(\d)$", r".ls\1.gamma"),),  # DeiT III, EVA
    ignored_keys=(
        (r"^mask_token$|^decoder_", "MAE's mask token and decoder, used in pre-training only"),
        (r"^head\.(mlp|last_layer)\.", "DINO's projection head, used in pre-training only"),
    ),
    preprocess=IMAGENET,
    supports={"position": ("learned", "none"), "final_norm": ("tokens", "pooled"),
              "norm_eps": (1e-6, 1e-5), "pooling": ("cls", "mean", "mean_all", "attention", "attention_patches"),
              "class_token": (bool,), "distillation": (bool,), "registers": (0, int), "pre_norm": (bool,),
              "qk_norm": (bool,), "layer_scale": (None, float), "mlp": ("gelu", "gelu_tanh", "quick_gelu", "swiglu")},
    zero_keys=(
        (r"^patch_embed\.proj\.bias$", "timm has no patch bias before a norm"),
        (r"^blocks\.\d+\.(attn\.proj|mlp\.fc[12])\.bias$", "AIMv2 has no such bias"),
    ),
    rewrites=("sincos positions to table", "class position into token", "patch bias into positions"),
)  # fmt: skip

DINOV2 = Layout(
    "dinov2",
    "DINOv2 without registers as published by its authors",
    (
        *row("cls_token", "cls_token"),
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
    config={**GELU, "position_antialias": False, "position_offset": 0.1},
    heads={384: 6, 768: 12, 1024: 16, 1536: 24},
    preprocess=IMAGENET,
    supports={"layer_scale": (float,), "mlp": ("gelu", "swiglu"), "num_classes": (0,), "norm_eps": (1e-6,)},
)  # fmt: skip
DINOV2_REGISTERS = replace(
    DINOV2,
    name="dinov2-registers",
    description="DINOv2 with registers as published by its authors",
    rows=(*DINOV2.rows, *row("reg_token", "register_tokens")),
    config=GELU,
    supports={**(DINOV2.supports or {}), "registers": (range(1, 1 << 30),)},
)
DINOV3 = Layout(
    "dinov3",
    "DINOv3 as published by its authors",
    (
        *row("cls_token", "cls_token"),
        *row("reg_token", "storage_tokens"),
        *pair("patch_embed.proj", "patch_embed.proj"),
        *row("blocks.{i}.attn.qkv.bias", "blocks.{i}.attn.qkv.bias", "blocks.{i}.attn.qkv.bias_mask",
             transform="masked"),  # the mask removes the bias of the keys
        *_OWN_BLOCK,
        *pair("blocks.{i}.mlp.fc1", "blocks.{i}.mlp.w1", "blocks.{i}.mlp.w2", transform="concat"),
        *pair("blocks.{i}.mlp.fc2", "blocks.{i}.mlp.w3"),
        *_OWN_MLP,
        *pair("norm", "norm"),
    ),
    ignored_keys=(
        (r"^mask_token$|^local_cls_norm\.", "pre-training"),
        (r"^rope_embed\.periods$", "periods of the rotary positions, computed from their base"),
    ),
    config=dict(mlp="gelu", norm_eps=1e-5, position="rotary"),
    heads={384: 6, 768: 12, 1024: 16, 1280: 20, 4096: 32},
    preprocess={**IMAGENET, "crop_fraction": 1.0},
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
    (r"^(vit|deit|ijepa|dinov2|dinov2_with_registers)\.", ""),
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
    config=dict(position_antialias=False),
    required=("heads", "mlp", "norm_eps"),
    preprocess={**HALF, "fit": "squash", "crop_fraction": 1.0, "interpolation": "bilinear"},
    body="vit.",
    supports={"mlp": _HF_ACTS},
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
    supports={"distillation": (True,), "mlp": _HF_ACTS},
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
    config={**GELU, "position_antialias": False},
    heads={384: 6, 768: 12, 1024: 16, 1536: 24},
    preprocess=IMAGENET,
    body="dinov2.",
    supports={"layer_scale": (float,), "pooling": ("cls", "cls_mean"), "mlp": (*_HF_ACTS, "swiglu")},
    rewrites=("sincos positions to table", "zero class position", "widen classifier to token and mean"),
)  # fmt: skip

HF_DINOV2_REGISTERS = replace(
    HF_DINOV2,
    name="hf-dinov2-registers",
    description="transformers: Dinov2WithRegistersModel, Dinov2WithRegistersForImageClassification",
    rows=(*HF_DINOV2.rows, *row("reg_token", "{body}embeddings.register_tokens")),
    config=GELU,
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
    heads={384: 6, 768: 12, 1024: 16, 1280: 20, 4096: 32},
    preprocess={**IMAGENET, "crop_fraction": 1.0},
    supports={"registers": (int,), "layer_scale": (float,), "mlp": (*_HF_ACTS, "swiglu"),
              "position": ("rotary",), "rope_base": (float,), "num_classes": (0,)},
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
    heads={768: 12, 1024: 16, 1280: 16},
    preprocess={**IMAGENET, "interpolation": "bilinear"},
    supports={"num_classes": (range(1, 1 << 30),), "in_channels": (3,), "qkv_bias": (True,),
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


_GOOGLE = {"qkv_bias": (True,), "head_hidden": (int,), "mlp": ("gelu", "gelu_tanh"), "norm_eps": (1e-6,)}

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
    config=dict(norm_eps=1e-5),
    heads={512: 8, 640: 10, 768: 12, 896: 14, 1024: 16, 1280: 16, 1408: 16, 1664: 16},
    required=("mlp",),  # OpenAI's models use quick_gelu, most of OpenCLIP's gelu
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
    config=dict(norm_eps=1e-5, position_antialias=False),
    heads={768: 12, 1024: 16, 1280: 16, 1664: 16},
    required=("mlp",),
    preprocess=CLIP,
)
_P = "vision_model.head."
HF_SIGLIP = Layout(
    "hf-siglip",
    "transformers: the vision tower of SigLIP and SigLIP 2",
    (
        *row("pos_embed", "vision_model.embeddings.position_embedding.weight", transform="table"),
        *row("patch_embed.proj.weight", "vision_model.embeddings.patch_embedding.weight", transform="patches"),
        *row("patch_embed.proj.bias", "vision_model.embeddings.patch_embedding.bias"),
        *(rule for rule in HF_CLIP.rows if rule.ours.startswith("blocks.")),
        *pair("norm", "vision_model.post_layernorm"),
        *row("attn_pool.latent", _P + "probe"),
        *(
            KeyRule(f"attn_pool.{ours}.{p}", (_P + f"attention.in_proj_{p}",), transform)
            for ours, transform in (("q", "query"), ("kv", "key and value"))
            for p in ("weight", "bias")
        ),
        *pair("attn_pool.proj", _P + "attention.out_proj"),
        *pair("attn_pool.norm", _P + "layernorm"),
        *pair("attn_pool.mlp.fc1", _P + "mlp.fc1"),
        *pair("attn_pool.mlp.fc2", _P + "mlp.fc2"),
    ),
    aliases=((r"^(?!vision_model\.|text_model\.|logit_|classifier\.)", "vision_model."),),
    ignored_keys=(
        (r"^text_model\.|^logit_(scale|bias)$", "SigLIP's text tower"),
        (r"position_ids$", "position indices 0, 1, 2 …"),
    ),
    config=dict(position_antialias=False),
    required=("heads", "mlp", "norm_eps"),
    preprocess={**HALF, "fit": "squash", "crop_fraction": 1.0},
)
HF_SIGLIP_CLASSIFIER = replace(
    HF_SIGLIP,
    name="hf-siglip-classifier",
    description="transformers: SiglipForImageClassification",
    rows=(*(rule for rule in HF_SIGLIP.rows if "attn_pool" not in rule.ours), *pair("head", "classifier")),
    ignored_keys=(
        *HF_SIGLIP.ignored_keys,
        (r"^vision_model\.head\.", "the pooling of features, not of the classifier"),
    ),
    config={**HF_SIGLIP.config, "pooling": "mean"},
)

# In order of preference, for checkpoints that fit several
LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        TIMM, DINOV2, DINOV2_REGISTERS, DINOV3, HF_VIT, HF_DEIT, HF_DINOV2, HF_DINOV2_REGISTERS, HF_DINOV3, HF_CLIP,
        HF_SIGLIP, HF_SIGLIP_CLASSIFIER, TORCHVISION, NPZ, BIG_VISION, OPENCLIP,
    )
}  # fmt: skip

# Names for `vitkit convert --to`: the first layout that supports the model is written
TARGETS = {
    "timm": (TIMM,),
    "dinov2": (DINOV2, DINOV2_REGISTERS),
    "hf": (HF_VIT, HF_DEIT, HF_DINOV2, HF_DINOV2_REGISTERS, HF_DINOV3),
    "torchvision": (TORCHVISION,),
    "npz": (NPZ,),
}
