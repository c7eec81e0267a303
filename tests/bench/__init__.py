from vitkit.model import ViTConfig

TINY = ViTConfig.from_dict(
    dict(image_size=32, patch_size=8, width=32, depth=2, heads=2, head_width=16, mlp_width=64, num_classes=10)
)
