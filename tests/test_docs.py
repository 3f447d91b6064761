"""The catalogue page says what the sources say, and imports none of them."""

from __future__ import annotations

from pathlib import Path

from docs.generate import page

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
    assert "| `kind`: `str \\| None` | `None` | Which. |" in text
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
    assert "| `lr`: `float from 0 to 1e+30 \\| Mapping[str, float from 0 to 1e+30]` | `0.1` |" in text
    assert "| `clip`: `float from 1e-15 to 1e+15` | `0.5` |" in text
    assert "| `seed`: `int from 0 to 2 ** 63 - 1` | `0` |" in text
    assert "Annotated" not in text
