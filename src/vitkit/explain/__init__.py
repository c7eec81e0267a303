"""What does the model look at?"""

from vitkit.explain.attention import attention_map, whose_attention

__all__ = ["attention_map", "whose_attention"]
