"""Batches in, a better model out. Read `loop.py` first."""

from vitkit.training.recipe import Recipe
from vitkit.training.recipes import RECIPES, get_recipe
from vitkit.training.results import Result
from vitkit.training.trainer import train

__all__ = ["RECIPES", "Recipe", "Result", "get_recipe", "train"]
