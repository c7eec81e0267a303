"""Batches in, a better model out. Read `loop.py` first."""

from vitkit.callable_package import make_callable
from vitkit.train.loop import train
from vitkit.train.outcome import Result
from vitkit.train.recipe import Recipe
from vitkit.train.recipes import RECIPES, get_recipe

__all__ = ["RECIPES", "Recipe", "Result", "get_recipe", "train"]

make_callable(__name__, train)
