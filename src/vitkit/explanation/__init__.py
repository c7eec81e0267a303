"""What does the model look at, and how far can the picture be trusted?"""

from vitkit.explanation.attention import attention_map, attention_maps, describe_query
from vitkit.explanation.methods import DEFAULT, METHODS
from vitkit.explanation.result import Explanation, explain

__all__ = ["DEFAULT", "METHODS", "Explanation", "attention_map", "attention_maps", "describe_query", "explain"]
