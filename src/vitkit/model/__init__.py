"""The Vision Transformer: images in, logits out. Read `vit.py` first, then follow its imports."""

from vitkit.model.config import ViTConfig
from vitkit.model.info import ModelInfo
from vitkit.model.variants import VARIANTS, find_variants
from vitkit.model.vit import ViT, create_model, find_model_class

__all__ = ["VARIANTS", "ModelInfo", "ViT", "ViTConfig", "create_model", "find_model_class", "find_variants"]
