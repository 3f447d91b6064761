"""Several callers at once, in threads: what each gave back, or what it failed by."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

__all__ = ["together"]

LONGEST = 60.0  # seconds that any of them may take


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Call all of them at the same time; the first error of any is raised, once all have ended."""
    found: dict[int, Any] = {}
    errors: list[BaseException] = []

    def one(place: int, call: Callable[[], Any]) -> None:
        try:
            found[place] = call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=entry, daemon=True) for entry in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONGEST)
        assert not thread.is_alive(), "it does not end"
    if errors:
        raise errors[0]
    return [found[place] for place in range(len(calls))]
