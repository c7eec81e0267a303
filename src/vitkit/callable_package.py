"""`vitkit.train(recipe)` trains, and `vitkit.train.loop` is a module: one name, because users expect both.

Python binds an imported package to its name in the parent, so a function of that name would be hidden by it. The
package is made callable instead.
"""

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def make_callable(package: str, function: Callable[..., Any]) -> None:
    class CallablePackage(ModuleType):
        __signature__ = inspect.signature(function)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

    sys.modules[package].__class__ = CallablePackage
