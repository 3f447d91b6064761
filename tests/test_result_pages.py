"""Pages about results say what committed results say: tables, pictures, verdicts, and no heaps of numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import pictures, undefended, verdicts
from docs.committed import Number, claims, number_in, sheets
from docs.drawing import Bar, bars
from docs.verdicts import HOLDS, NOT, OPEN, PART, judged

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / "papers" / paper / "README.md" for paper in verdicts.PAPERS),
    *(ROOT / "docs" / "results" / f"{name}.md" for name in ("papers", "quality", "leakage", "speed")),
    ROOT / "docs" / "which-defence.md",
]
RESULTS = """# Results: A paper

### table1 on ML-100K: A title

**Gender: AUC of the attack**

| method | AIA | paper | difference |
| --- | ---: | ---: | ---: |
| Plain | 0.700 [0.650, 0.750] | 0.710 | −0.010 |
| Noisy† | 0.520 [0.480, 0.560] | 0.600 | −0.080 |

What the paper says, on our numbers:

- Noisy leaks less gender than Plain (AUC): yes, 0.520 against 0.700, −0.180 [−0.240, −0.120]; one seed.
- Plain recommends better than Noisy (HR@10): not told apart, 0.5 against 0.4, +0.100 [−0.010, +0.210].
- Noisy leaks less age than Plain (AUC): yes, 0.5 against 0.7, −0.2 [−0.3, −0.1]; low leakage is not ranked.

Notes:

- Not run on ML-100K: Louder; Softer.
"""


def test_pages_are_what_the_results_say() -> None:
    stale = [path.name for path, text, new in verdicts.written() if text != new]
    assert stale == [], "python -m docs.verdicts writes them"


def test_pictures_are_what_the_results_say() -> None:
    for name, drawn in pictures.drawn().items():
        kept = (pictures.FOLDER / name).read_text(encoding="utf-8")
        assert kept == drawn, f"python -m docs.pictures draws {name}"
        assert len(drawn) < 150_000
        assert "<script" not in drawn


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_paragraph_is_a_heap_of_numbers(page: Path) -> None:
    """At most three to a paragraph; tables, code, what a script writes and intervals are for numbers."""
    text = re.sub(r"```.*?```|<!-- .*?<!-- end -->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for paragraph in re.split(r"\n\s*\n", text):
        if not paragraph.lstrip().startswith(("|", "#", "<", "!")):
            told = re.sub(r"`[^`]*`|\]\([^)]*\)|\[[−+\d., ]*\]", "", paragraph)
            found = re.findall(r"(?<![\w.])[−+]?\d[\d,]*(?:\.\d+)?(?!\w)", told)
            assert len(found) <= 3, paragraph


def test_committed_results_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "RESULTS.md"
    path.write_text(RESULTS, encoding="utf-8")
    (sheet,) = sheets(path)
    assert (sheet.table, sheet.dataset, sheet.title) == ("table1", "ML-100K", "Gender: AUC of the attack")
    assert number_in(sheet.cell("Noisy", "AIA")) == Number(0.52, 0.48, 0.56)
    assert number_in(sheet.cell("Noisy", "difference")) == Number(-0.08)
    assert number_in("–") is None
    assert [(one.outcome, one.difference, one.one_seed) for one in claims(path)] == [
        ("yes", "−0.180 [−0.240, −0.120]", True),
        ("not told apart", "+0.100 [−0.010, +0.210]", False),
        ("not ranked", "−0.2 [−0.3, −0.1]", False),
    ]
    assert verdicts.near(path)[-1] == (
        "- table1 on ML-100K: 2 printed, 1 within 0.01, 1 inside our interval, none missing. "
        "Not run: Louder; Softer."
    )


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        (["yes", "yes"], HOLDS),
        (["yes", "not told apart"], PART),
        (["yes", "no"], PART),
        (["no", "not ranked"], NOT),
        (["not told apart", "not ranked"], OPEN),
    ],
)
def test_a_claim_is_judged_by_its_parts(outcomes: list[str], verdict: str) -> None:
    assert judged(outcomes) == verdict


def test_a_claim_of_which_nothing_was_checked_is_an_error() -> None:
    told = {"says": "x", "where": "y", "rests": [{"match": "nobody ever said this"}]}
    with pytest.raises(ValueError, match="nothing was checked"):
        verdicts._verdict("apm", told)


def test_every_undefended_model_has_its_numbers() -> None:
    rows = [line.split(" | ") for line in undefended.quality().splitlines()[2:]]
    assert len(rows) == 18
    assert all(re.fullmatch(r"0\.\d{3}", row[3]) for row in rows)
    assert "| FedNCF | ML-100K | recall@10 | 0.629 |" in undefended.quality()


def test_a_bar_leads_from_the_floor_to_its_number() -> None:
    drawn = bars("A & B", "", [Bar("x", Number(0.75, 0.7, 0.8), 0.6)], ("chance", 0.5), (0.0, 1.0))
    assert '<rect class="bar" x="490.0" y="70.0" width="120.0" height="18"/>' in drawn
    assert 'aria-label="A &amp; B"' in drawn
