"""Tables: what people read on the standard output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["console", "table"]

PIPE_WIDTH = 110  # columns, where no terminal says how wide it is


def console(*, stderr: bool = False) -> Console:
    """The terminal, or a pipe; rich leaves colours out for a pipe and for NO_COLOR."""
    from rich.console import Console

    plain: Any = {
        "stderr": stderr,
        "highlight": False,
        "markup": False,
        "emoji": False,
    }  # titles may have brackets
    found = Console(**plain)
    return found if found.is_terminal else Console(**plain, width=max(PIPE_WIDTH, found.width))


def table(*columns: str, right: Sequence[str] = (), title: str = "") -> Table:
    """A table with a line under its head; the columns in `right` hold numbers."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False, expand=False)
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return made
