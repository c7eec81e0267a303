"""What does the model look at?"""

from vitkit.explain.attention import attention_map

__all__ = ["attention_map"]
