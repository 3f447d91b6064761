"""Templates of pages, and what a page may do: nothing that is not in its own file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

__all__ = ["policy", "template", "text_of"]


def template(name: str, **globals_: Any) -> Any:
    """A template; whatever a result says is text to it, and a name that it lacks is an error.

    >>> template("head.html").render(policy="none", title="a < b", style="").splitlines()[8]
    '<title>a &lt; b</title>'
    """
    environment = Environment(
        loader=FunctionLoader(text_of),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= globals_
    return environment.get_template(name)


def text_of(name: str) -> str:
    """A file of this room, by its path in it."""
    return files("veilrec.report").joinpath(name).read_text(encoding="utf-8")


def policy(styles: Sequence[str], scripts: Sequence[str] = ()) -> str:
    """A content policy: only these styles may look and only these scripts run, and nothing is loaded.

    >>> policy([""]).split("; ")[0]
    "default-src 'none'"
    """
    look, run = (" ".join(map(_digest, texts)) for texts in (styles, scripts))
    rest = "form-action 'none'; base-uri 'none'"
    if not scripts:
        return f"default-src 'none'; style-src {look}; img-src data:; {rest}"
    may = f"script-src {run}; style-src {look}; img-src data: blob:; connect-src 'none'"
    return f"default-src 'none'; {may}; {rest}"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
