"""Explanations: attention maps, gradient and occlusion maps, their faithfulness, and statistics of the model."""

from vitkit.explanation.attention import attention_map, attention_maps, describe_query
from vitkit.explanation.methods import DEFAULT_METHOD, METHODS
from vitkit.explanation.result import Explanation, explain

__all__ = ["DEFAULT_METHOD", "METHODS", "Explanation", "attention_map", "attention_maps", "describe_query", "explain"]
