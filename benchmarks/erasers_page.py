"""``python -m benchmarks.erasers_page [RESULTS.jsonl …]``: the page about erasers, from committed results.

With files of results, the small table under docs/results/data is made from them first. Then the tables of
docs/results/erasers.md and its picture are written from that table alone; ``--check`` says whether they are
as they would be written now.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.erasing.page import filled
from benchmarks.erasing.picture import frontier
from benchmarks.erasing.rows import packed, read_packed, results, rows_of

DOCS = Path(__file__).parents[1] / "docs"
TABLE = DOCS / "results" / "data" / "erasers.csv"
PAGES = (DOCS / "results" / "erasers.md", DOCS / "unlearning.md")
PICTURE = DOCS / "pictures" / "erasers.svg"


def main(given: Sequence[str] | None = None) -> int:
    """Write what is stale, or with ``--check`` name it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="*", type=Path, metavar="RESULTS.jsonl")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(given)
    if options.results:
        TABLE.parent.mkdir(parents=True, exist_ok=True)
        cells = {row["key"]: row for path in options.results for row in results(path)}
        packed(rows_of(cells.values()), TABLE)
    rows = read_packed(TABLE)
    wanted = {page: filled(page.read_text(encoding="utf-8"), rows) for page in PAGES}
    stale = 0
    for path, text in {**wanted, PICTURE: frontier(rows)}.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale += 1
            print(path.relative_to(DOCS.parent))
            if not options.check:
                path.write_text(text, encoding="utf-8")
    return int(bool(stale) and options.check)


if __name__ == "__main__":
    raise SystemExit(main())
