"""Docstrings as Markdown has them: examples between fences, and one line for each name that is explained.

In the sources examples stand bare, where Markdown would take `>>>` for quotes, and names of one meaning share
a line. mkdocstrings loads this as an extension of griffe, which reads the sources (see mkdocs.yml).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import griffe

PROMPT = ">>> "
SECTION = re.compile(r"^(Args|Attributes):$")
SHARED = re.compile(r"^ {4}(\w+(?:, \w+)+): (.+)$")


def mended(text: str) -> str:
    """A docstring with examples between fences, and with a line of its own for every name."""
    return "\n".join(_fenced(list(_apart(text.splitlines()))))


def _fenced(lines: Sequence[str]) -> Iterator[str]:
    """Each example up to the next empty line."""
    inside = False
    for line in [*lines, ""]:
        if not inside and line.lstrip().startswith(PROMPT):
            inside = True
            yield "```python"
        elif inside and not line.strip():
            inside = False
            yield "```"
        yield line


def _apart(lines: Sequence[str]) -> Iterator[str]:
    """``users, items: Numbers.`` as two lines, with what continues them."""
    section, waiting = False, []
    for line in lines:
        if waiting and not line.startswith(" " * 8):
            yield from _repeated(waiting)
            waiting = []
        section = bool(SECTION.match(line)) or (section and (line.startswith(" ") or not line))
        if section and (waiting or SHARED.match(line)):
            waiting.append(line)
        else:
            yield line
    yield from _repeated(waiting)


def _repeated(lines: Sequence[str]) -> Iterator[str]:
    for found in filter(None, map(SHARED.match, lines[:1])):
        meaning = " ".join([found[2], *(line.strip() for line in lines[1:])])
        yield from (f"    {name}: {meaning}" for name in found[1].split(", "))


class Docstrings(griffe.Extension):
    """Mends every docstring before it is parsed."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Look at one object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = mended(obj.docstring.value)
