"""Generated pages say what program and sources say, links lead somewhere, and it builds without warnings."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name

import pytest
import typer.main

from docs import api, commands, links
from docs.generate import page
from veilrec import errors
from veilrec.cli import app

ROOT = Path(__file__).parents[1]

DEFENCE = '''"""Blur: noise on the way out.

Paper: Author, "A Title that is
long", Venue 2020.
Acts at: on_upload.
"""

from dataclasses import dataclass

from a_package_that_is_not_there import Defence

__all__ = ["Blur"]


@dataclass(frozen=True)
class Blur(Defence):
    """Add noise to
    every value.

    More about it.

    Attributes:
        scale, floor: How much,
            at least.
        kind: Which.
    """

    scale: float = 0.5
    floor: float = 0.0
    kind: str | None = None


class Hidden(Defence):
    """Not listed."""
'''
MODEL = '''"""Flat: one score for all.

Paper: none.
"""

__all__ = ["Flat"]


class Flat:
    """Score everything alike."""

    def __init__(self, n_items: int, *, dim: int = 8) -> None:
        """Store."""
'''


def test_an_entry_is_told_in_full(tmp_path: Path) -> None:
    (tmp_path / "defences").mkdir()
    (tmp_path / "defences" / "blur.py").write_text(DEFENCE)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "flat.py").write_text(MODEL)
    (tmp_path / "models" / "layers.py").write_text('"""Shared."""\n__all__ = ["Dense"]\nclass Dense: ...\n')
    text = page(tmp_path)
    assert "### Blur\n\nAdd noise to every value.\n" in text
    assert '*Paper: Author, "A Title that is long", Venue 2020.*' in text
    assert "*Acts at: on_upload.*" in text
    assert "| `scale`: `float` | `0.5` | How much, at least. |" in text
    assert "| `floor`: `float` | `0.0` | How much, at least. |" in text
    assert "| `kind`: `str | None` | `None` | Which. |" in text
    assert "| `dim`: `int` | `8` |" in text
    assert "n_items" not in text
    assert "Hidden" not in text
    assert "Dense" not in text


def test_the_package_has_its_entries_on_the_page() -> None:
    text = page()
    for name in ("FedMF", "FedNCF", "FedAvg", "`[plan]`", "`[threat]`"):
        assert f"### {name}\n" in text


def test_numbers_come_with_their_bounds() -> None:
    text = page()
    assert "| `dim`: `int from 1 to 65,536` | `64` | Width of the vectors. |" in text
    assert "| `dropout`: `float from 0 to below 1` |" in text
    assert "| `lr`: `float from 0 to 1e+30 | Mapping[str, float from 0 to 1e+30]` | `0.1` |" in text
    assert "| `clip`: `float from 1e-15 to 1e+15` | `0.5` |" in text
    assert "| `seed`: `int from 0 to 2 ** 63 - 1` | `0` |" in text
    assert "Annotated" not in text


def test_the_program_has_its_commands_on_the_page() -> None:
    text = commands.page()
    told = list(commands.commands(typer.main.get_command(app), "veilrec"))
    assert {"veilrec run", "veilrec data import"} <= {name for name, _ in told}
    for name, command in told:
        part = text.split(f"\n## {name}\n")[1].split("\n## ")[0]
        flags = {flag for param in command.params for flag in param.opts if flag.startswith("-")} - {
            "--help",
            "-h",
        }
        assert all(f"`{flag}" in part for flag in flags if "completion" not in flag), name
    assert f"| {errors.Corrupted.code} | {errors.Corrupted.__doc__} |" in text


def test_what_the_page_of_names_lists_can_be_imported() -> None:
    places = [line.removeprefix("::: ") for line in api.page().splitlines() if line.startswith(":::")]
    assert "veilrec.experiment.Experiment" in places
    assert len(places) == len(set(places))
    for place in places:
        module, name = place.rsplit(".", 1)
        assert resolve_name(f"{module}:{name}").__name__ == name


@pytest.mark.parametrize(
    ("place", "link", "mended"),
    [
        ("docs/results/papers.md", "[APM](../../papers/apm/README.md)", "[APM](apm.md)"),
        ("docs/guide.md", "[APM](../papers/apm/README.md#a)", "[APM](results/apm.md#a)"),
        ("papers/apm/README.md", "[speed](../../docs/results/speed.md)", "[speed](speed.md)"),
        ("papers/apm/README.md", "[guide](../../docs/guide.md)", "[guide](../guide.md)"),
        ("papers/apm/README.md", "[all](RESULTS.md)", "all (`papers/apm/RESULTS.md`)"),
        ("docs/guide.md", "[attacks](attacks.md#x)", "[attacks](attacks.md#x)"),
        ("docs/guide.md", "[elsewhere](https://example.org/x)", "[elsewhere](https://example.org/x)"),
        ("docs/guide.md", "![a picture](pictures/x.png)", "![a picture](pictures/x.png)"),
        ("papers/apm/README.md", "![bars](../../docs/pictures/x.svg)", "![bars](../pictures/x.svg)"),
    ],
)
def test_links_hold_among_the_built_pages(place: str, link: str, mended: str) -> None:
    assert links.mended(f"See {link}.", place) == f"See {mended}."


def test_docstrings_become_markdown() -> None:
    pytest.importorskip("griffe", reason="the extra docs is not installed")
    from docs import docstrings

    text = "One.\n\n>>> 1 + 1\n2\n\nArgs:\n    a, b: Both\n        of them.\n    c: One."
    told = docstrings.mended(text)
    assert told.startswith("One.\n\n```python\n>>> 1 + 1\n2\n```\n\nArgs:\n")
    assert told.rstrip().endswith("    a: Both of them.\n    b: Both of them.\n    c: One.")


@pytest.mark.slow
def test_the_documentation_is_built_without_a_warning(tmp_path: Path) -> None:
    if find_spec("mkdocs") is None or find_spec("mkdocstrings") is None:
        pytest.skip("the extra docs is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("index", "commands", "catalogue", "api", "results/apm"):
        assert (tmp_path / f"{name}.html").stat().st_size > 5000
