"""Training. Read `train.py` first, then `trainer.py`."""

from vitkit.training.recipe import Recipe
from vitkit.training.recipes import RECIPES, get_recipe
from vitkit.training.results import Result

__all__ = ["RECIPES", "Recipe", "Result", "get_recipe"]
