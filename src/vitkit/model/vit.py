"""The Vision Transformer (Dosovitskiy et al. 2021). The whole forward is on this screen.

Shapes: b batch, c channels, (h, w) pixels, t = prefix + patches tokens, d width, k classes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vitkit.errors import ConfigError, UnknownNameError
from vitkit.model.attention import attention_weights
from vitkit.model.block import Block
from vitkit.model.config import Pair, ViTConfig
from vitkit.model.dropout import Dropout
from vitkit.model.head import AttentionPool, Pool, PreLogits
from vitkit.model.info import ModelInfo
from vitkit.model.init import find_uninitialized, init_weights
from vitkit.model.norm import make_norm
from vitkit.model.patch_embed import PatchEmbed
from vitkit.model.pos_embed import Rope, axial_rope, resample_table, sincos_table
from vitkit.model.sdpa import Capture
from vitkit.model.validation import check_images, resolve_indices
from vitkit.model.variants import get_config


class ViT(nn.Module):
    """Images of any size that the patch size divides → logits.

    A `capture` passed to the forward receives the queries and keys of every attention layer, in order (see sdpa.py).
    A subclass may set `block_class`, define further parts, or override any method.
    """

    block_class: ClassVar[type[nn.Module]] = Block  # called with the config and the drop-path rate of the block

    def __init__(self, config: ViTConfig | Mapping[str, Any], generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = c = config if isinstance(config, ViTConfig) else ViTConfig.from_dict(config)
        self.info = ModelInfo()
        self.grad_checkpointing = False

        self.patch_embed = PatchEmbed(c)
        self.cls_token = nn.Parameter(torch.empty(1, 1, c.width)) if c.class_token else None
        self.dist_token = nn.Parameter(torch.empty(1, 1, c.width)) if c.distillation else None
        self.reg_token = nn.Parameter(torch.empty(1, c.registers, c.width)) if c.registers else None
        self.class_rows = (c.class_token + c.distillation) if c.class_position else 0
        rows = c.grid[0] * c.grid[1] + self.class_rows
        self.pos_embed = nn.Parameter(torch.empty(1, rows, c.width)) if c.learns_positions else None
        self.pos_drop = Dropout(c.dropout)
        self.norm_pre = make_norm(c) if c.pre_norm else nn.Identity()

        self.blocks = nn.ModuleList(self.block_class(c, c.drop_path * i / max(c.depth - 1, 1)) for i in range(c.depth))
        self.norm = make_norm(c) if c.final_norm == "tokens" else nn.Identity()

        self.attn_pool = AttentionPool(c) if c.pooling in ("attention", "attention_patches") else Pool(c)
        self.fc_norm = make_norm(c) if c.final_norm == "pooled" else nn.Identity()
        self.pre_logits = PreLogits(c.pooled_width, c.head_hidden) if c.head_hidden else nn.Identity()
        self.head = _classifier(c)
        self.head_dist = _classifier(c) if c.distillation else None
        init_weights(self, generator, xavier=c.init == "xavier")

    def forward(self, images: Float[Tensor, "b c h w"], capture: Capture | None = None) -> Float[Tensor, "b k"]:
        """y = LN(z_L⁰), then the classifier (eq. 4)."""
        logits, distilled = self.forward_heads(images, capture)
        return logits if distilled is None else (logits + distilled) / 2

    def forward_heads(
        self, images: Float[Tensor, "b c h w"], capture: Capture | None = None
    ) -> tuple[Float[Tensor, "b k"], Tensor | None]:
        """Return the classifier's logits, and those of the distillation token if the model has one (DeiT)."""
        return self._classify(self.forward_features(images, capture), capture)

    def _classify(self, tokens: Tensor, capture: Capture | None = None) -> tuple[Tensor, Tensor | None]:
        logits = self.head(self._pool(tokens, capture))
        return logits, None if self.head_dist is None else self.head_dist(tokens[:, 1])

    def _pool(self, tokens: Tensor, capture: Capture | None = None) -> Tensor:
        return self.pre_logits(self.fc_norm(self.attn_pool(tokens, capture)))

    def forward_head(self, tokens: Float[Tensor, "b t d"], pre_logits: bool = False) -> Float[Tensor, "b k"]:
        """Return the logits of tokens from `forward_features`; with `pre_logits`, what the classifier receives."""
        if pre_logits:
            return self._pool(tokens)
        logits, distilled = self._classify(tokens)
        return logits if distilled is None else (logits + distilled) / 2

    def forward_features(
        self, images: Float[Tensor, "b c h w"], capture: Capture | None = None
    ) -> Float[Tensor, "b t d"]:
        """Return all tokens after the last norm: class and distillation token, registers, then patches row by row."""
        x, rope = self.embed(images)
        for block in self.blocks:
            x = self._run(block, x, rope, capture)
        return self.norm(x)

    def embed(self, images: Float[Tensor, "b c h w"]) -> tuple[Float[Tensor, "b t d"], Rope | None]:
        """z₀ = [x_class; xₚ¹E; xₚ²E; …; xₚᴺE] + E_pos (eq. 1), and the rotation of rotary positions."""
        check_images(images, self.config, self.patch_embed.proj.weight.dtype)
        grid = images.shape[2] // self.config.patch_size[0], images.shape[3] // self.config.patch_size[1]
        class_position, patch_position = self._positions(grid)
        tokens = []
        if self.cls_token is not None:
            classes = self.cls_token if self.dist_token is None else torch.cat([self.cls_token, self.dist_token], dim=1)
            tokens.append((classes + class_position).expand(images.shape[0], -1, -1))
        if self.reg_token is not None:
            tokens.append(self.reg_token.expand(images.shape[0], -1, -1))
        tokens.append(self.patch_embed(images) + patch_position)
        rope = self.rope(grid, images.device) if self.config.rotates else None
        return self.norm_pre(self.pos_drop(torch.cat(tokens, dim=1))), rope

    def _positions(self, grid: Pair) -> tuple[Tensor | float, Tensor | float]:
        """Return what is added to the class tokens and to the patch tokens."""
        c = self.config
        if self.pos_embed is not None:
            class_rows, table = self.pos_embed[0, : self.class_rows], self.pos_embed[0, self.class_rows :]
            return class_rows if self.class_rows else 0.0, self._resample(table, grid)
        if c.position == "sincos":
            weight = self.patch_embed.proj.weight
            return 0.0, sincos_table(grid, c.width, weight.device).to(weight.dtype)
        return 0.0, 0.0

    def _resample(self, table: Tensor, grid: Pair) -> Tensor:
        c = self.config
        return resample_table(table, c.grid, grid, c.position_resample, c.position_antialias, c.position_offset)

    def rope(self, grid: Pair, device: torch.device | None = None) -> Rope:
        """Return the rotation of every patch of a grid, for models with rotary positions."""
        c = self.config
        return axial_rope(grid, c.head_width, device, c.rope_unit, c.rope_base, c.rope_offset, c.rope_grid)

    def _run(self, block: nn.Module, x: Tensor, rope: Rope | None, capture: Capture | None = None) -> Tensor:
        if capture is not None:
            return block(x, rope, capture)
        if self.grad_checkpointing and self.training:
            return checkpoint(block, x, rope, use_reentrant=False)
        return block(x, rope)

    def forward_intermediates(
        self,
        images: Float[Tensor, "b c h w"],
        layers: int | Sequence[int] | None = None,
        norm: bool = False,
        output: Literal["NLC", "NCHW"] = "NLC",
    ) -> list[Tensor]:
        """Return the tokens after the given blocks (default: all; -1 is the last), with the final norm if `norm`.

        `output` is "NLC" for all tokens, (B, tokens, width), or "NCHW" for the patches alone as a feature map.
        """
        indices = resolve_indices("layer", layers, self.config.depth)
        x, rope = self.embed(images)
        found = {}
        for i, block in enumerate(self.blocks[: max(indices) + 1]):
            x = self._run(block, x, rope)
            if i in indices:
                found[i] = self.norm(x) if norm else x
        if output == "NLC":
            return [found[i] for i in indices]
        grid = images.shape[2] // self.config.patch_size[0], images.shape[3] // self.config.patch_size[1]
        return [found[i][:, self.config.prefix :].mT.unflatten(2, grid) for i in indices]

    def attention(
        self,
        images: Float[Tensor, "b c h w"],
        layers: int | Sequence[int] | None = None,
        heads: int | Sequence[int] | None = None,
        queries: int | Sequence[int] | None = None,
    ) -> Float[Tensor, "layers b heads queries t"]:
        """Return the exact softmax weights of the given layers, heads and query tokens (default: all of them).

        Rows sum to one over all tokens. The forward itself runs on its fused kernel, up to the last requested layer.
        Token 0 is the class token if there is one: `queries=[0]` gives the attention of the class token.
        """
        indices = resolve_indices("layer", layers, self.config.depth)
        heads = resolve_indices("head", heads, self.config.heads)
        x, rope = self.embed(images)
        rows = resolve_indices("query", queries, x.shape[1])
        found: list[Tensor] = []

        def capture(q: Tensor, k: Tensor) -> None:
            found.append(attention_weights(q[:, heads][:, :, rows], k[:, heads]))

        for i, block in enumerate(self.blocks[: max(indices) + 1]):
            x = self._run(block, x, rope, capture if i in indices else None)
        order = sorted(set(indices))
        return torch.stack([found[order.index(i)] for i in indices])

    def reset_classifier(self, num_classes: int, hidden: int = 0) -> None:
        """Replace the classifier by one of zero weights, so that fine-tuning starts from the features (section 4.1).

        The hidden layer of a pre-training head is dropped, or initialised again with the width `hidden`.
        """
        self.config = self.config.replace(num_classes=num_classes, head_hidden=hidden)
        self.info = self.info.replace(class_names=())  # the old names must not label the new classes
        like = self.patch_embed.proj.weight
        self.pre_logits = PreLogits(self.config.pooled_width, hidden) if hidden else nn.Identity()
        init_weights(self.pre_logits, xavier=self.config.init == "xavier")
        self.pre_logits.to(like.device, like.dtype)
        self.head = _classifier(self.config).to(like.device, like.dtype)
        self.head_dist = _classifier(self.config).to(like.device, like.dtype) if self.config.distillation else None
        for head in (self.head, self.head_dist):
            for parameter in head.parameters() if head is not None else ():
                nn.init.zeros_(parameter)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """In training, keep one tensor per block and recompute the others in the backward: less memory, more time."""
        self.grad_checkpointing = enable

    def layer_index(self, name: str) -> int:
        """Return a parameter's layer: 0 for the embedding, 1 … depth for the blocks, depth + 1 for everything after.

        Layer-wise learning rates use it. A subclass may override it, as it may `no_weight_decay`.
        """
        if name.startswith("blocks."):
            return int(name.split(".")[1]) + 1
        first = ("patch_embed", "cls_token", "dist_token", "reg_token", "pos_embed", "norm_pre")
        return 0 if name.startswith(first) else self.config.depth + 1

    def no_weight_decay(self) -> set[str]:
        """Return the names of the tokens and of the position table, which optimizers should not decay."""
        names = {"cls_token", "dist_token", "reg_token", "pos_embed", "attn_pool.latent"}
        return names & {name for name, _ in self.named_parameters()}


def _classifier(c: ViTConfig) -> nn.Module:
    return nn.Linear(c.head_hidden or c.pooled_width, c.num_classes) if c.num_classes else nn.Identity()


def create_model(
    model: str | ViTConfig | Mapping[str, Any],
    *,
    seed: int | None = None,
    device: str | torch.device = "cpu",
    model_class: type[ViT] = ViT,
    **changes: Any,
) -> ViT:
    """Create a ViT by name, config or dictionary, with config fields changed: `create_model(name, num_classes=10)`.

    Another `width` changes the widths of heads and MLP with it, unless they are given. timm's names are accepted:
    embed_dim, num_heads, head_dim, mlp_ratio, img_size. With a seed, the weights are drawn from a generator of their
    own, and torch's global state stays untouched. `device="meta"` allocates no memory: for counting, or for weights
    that are loaded afterwards. `model_class` is a subclass of ViT.
    """
    if isinstance(model, str):
        config = get_config(model)
    elif isinstance(model, ViTConfig):
        config = model
    elif isinstance(model, Mapping):
        config = ViTConfig.from_dict(model)
    else:
        raise ConfigError(f"a model is a name, a ViTConfig or a dictionary, not {type(model).__name__}")
    if changes:
        config = config.replace(**changes)
    with torch.device("meta"):
        vit = model_class(config)
    if torch.device(device).type == "meta":
        return vit
    generator = None if seed is None else torch.Generator(device).manual_seed(seed)
    if next(vit.buffers(), None) is not None:  # a subclass computes them when it is built
        with torch.device(device):
            vit = model_class(config)
    else:
        vit.to_empty(device=device)
    with torch.no_grad():
        for parameter in vit.parameters():
            parameter.fill_(torch.nan)
    init_weights(vit, generator, xavier=config.init == "xavier")
    if name := find_uninitialized(vit):
        raise ConfigError(
            f"{model_class.__name__}: {name} has no initial values: its module needs a method `init_weights(generator)`"
        )
    return vit


def find_model_class(name: str, module: str = "") -> type[ViT]:
    """Return the subclass of ViT with this name, of this module if several have it. Raise if none is imported."""
    found = [each for each in _subclasses(ViT) if each.__qualname__ == name]
    if not found:
        known = [each.__qualname__ for each in _subclasses(ViT)]
        raise UnknownNameError("model class", name, known, f"import {module} in Python before you load the model")
    return next((each for each in reversed(found) if each.__module__ == module), found[-1])


def _subclasses(model_class: type[ViT]) -> list[type[ViT]]:
    return [model_class, *(each for direct in model_class.__subclasses__() for each in _subclasses(direct))]
