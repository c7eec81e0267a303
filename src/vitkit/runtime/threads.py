"""Run a function on many items by threads."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

THREADS = 8  # they wait for the disk, or decode with Python's lock released


def threaded_map(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int = THREADS, ahead: int = 256
) -> Iterator[Result]:
    """Yield `function(item)` for each item, in order; threads work on at most `ahead` items in advance.

    `items` may be infinite. Closing the iterator cancels the items that have not been started.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix="vitkit-map")
    try:
        jobs = (pool.submit(function, item) for item in items)
        waiting = deque(islice(jobs, ahead))
        while waiting:
            result = waiting.popleft().result()
            waiting.extend(islice(jobs, 1))
            yield result
    finally:
        pool.shutdown(cancel_futures=True)
