"""What does the model look at, and how far can the picture be trusted?"""

from vitkit.callable_package import make_callable
from vitkit.explain.attention import attention_map, attention_maps, whose_attention
from vitkit.explain.explanation import Explanation, explain
from vitkit.explain.methods import DEFAULT, METHODS

__all__ = ["DEFAULT", "METHODS", "Explanation", "attention_map", "attention_maps", "explain", "whose_attention"]

make_callable(__name__, explain)
