"""The page of a receipt: one HTML file without any script, which opens offline and prints on paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from veilrec.errors import Corrupted
from veilrec.metrics.words import bare
from veilrec.report.figures import PageTable
from veilrec.report.receipts import rows
from veilrec.report.template import policy, template, text_of

__all__ = ["is_receipt", "receipt_page", "receipt_section", "receipt_style"]

KIND = "receipt"
Told = Mapping[str, Any]


def is_receipt(told: Any) -> bool:
    """Whether a file that was read holds a receipt."""
    return isinstance(told, Mapping) and isinstance(told.get("asked"), Mapping) and "done" in told


def receipt_page(told: Told, where: Path | str, title: str = "") -> str:
    """The whole page as text.

    Raises:
        Corrupted: Where a receipt is not what veilrec writes.
    """
    style = text_of("style.css") + receipt_style()
    values = _values(told, where, title)
    text: str = template("receipts/receipt.html").render(
        style=style, policy=policy([style]), level=2, key="", **values
    )
    return text.lstrip().encode("utf-8", "replace").decode("utf-8")


def receipt_section(told: Told, where: Path | str, key: str) -> str:
    """The same inside another page, below a heading of the second level: `key` begins its marks.

    Raises:
        Corrupted: Where a receipt is not what veilrec writes.
    """
    text: str = template("receipts/body.html").render(level=3, key=key, **_values(told, where, ""))
    return text.strip()


def receipt_style() -> str:
    """What the style of a page needs beside its own."""
    return text_of("receipts/receipt.css")


def _values(told: Told, where: Path | str, title: str) -> dict[str, Any]:
    try:
        return _said(told, title)
    except (AttributeError, KeyError, TypeError, ValueError) as cause:
        raise Corrupted(f"{where}: the receipt cannot be read ({cause!r}); make it again") from cause


def _said(told: Told, title: str) -> dict[str, Any]:
    """All that the templates say."""
    names = " and ".join(map(str, told["asked"]["attributes"]))
    return {
        "title": title or f"Erasure of {names}",
        "meta": " · ".join(_meta(told)),
        "conclusion": [str(one) for one in told.get("conclusion") or _unmeasured(names)],
        "releasable": told.get("for_release", True) is not False,
        "chance": str(told.get("by_chance") or ""),
        "doubts": [str(one) for one in told.get("doubts") or ()],
        "limits": [str(one) for one in told.get("is_not") or ()],
        "attributes": [_attribute(str(n), entry) for n, entry in (told.get("attributes") or {}).items()],
        "who": _who(told.get("who_asked")),
        **dict(zip(("useful", "others"), _useful(told.get("usefulness") or {}), strict=True)),
        "asked": list(_facts(told["asked"])),
        "done": list(_facts(told["done"])),
        "hashes": _hashes(told),
        "lists": [(name, list(_lines(told.get(key)))) for key, name in LISTS.items() if told.get(key)],
        "how": list(_facts(told.get("how") or {})),
    }


LISTS = {
    "purged": "What was removed, because it would go on telling",
    "kept": "What was kept, and goes on telling",
    "stale": "What was measured before, and no longer holds",
    "notes": "Notes",
}


WORDS = {
    "of": "of how many",
    "at": "when",
    "why": "why this one",
    "changed_of_others": "changed of others",
    "secret": "secret draws",
    "beside": "families on lists and differences",
    "shares": "shares of labels known",
    "draws": "draws of known users",
}


def _unmeasured(names: str) -> list[str]:
    return [
        f"What can still be found out about {names} was not measured.",
        "The history of what users touched stays, and may tell it.",
    ]


def _meta(told: Told) -> Iterator[str]:
    asked, done = told["asked"], told["done"]
    users, of = asked.get("users"), asked.get("of")
    yield f"{bare(users)} of {bare(of)} users asked" if of is not None else f"{bare(users)} users asked"
    if name := _eraser(done):
        yield f"by {name}"
    if at := asked.get("at"):
        yield f"asked {at}"


def _eraser(done: Told) -> str:
    named = done.get("eraser") or {}
    return str(named.get("name", "")) if isinstance(named, Mapping) else str(named)


def _attribute(name: str, entry: Told) -> dict[str, Any]:
    names, counts = entry.get("classes") or (), entry.get("counts") or ()
    classes = [f"{one}: {bare(count)}" for one, count in zip(names, counts, strict=False)]
    return {
        "name": name,
        "classes": ", ".join(classes),
        "sentences": [str(one) for one in entry.get("sentences") or ()],
        "pairs": list(rows.pairs(entry)),
        "numbers": rows.numbers(entry),
        "families": rows.families(entry),
        "later": rows.later(entry),
    }


def _useful(told: Told) -> tuple[PageTable, PageTable]:
    """Usefulness of lists of ten, and by all other metrics; where there are no such lists, all at once."""
    ten = {name: entry for name, entry in told.items() if str(name).endswith("@10")}
    shown = ten or told
    return rows.useful(shown), rows.useful({n: entry for n, entry in told.items() if n not in shown})


def _who(told: Any) -> list[rows.LookPair]:
    if not told:
        return []
    small = f"{100 * float(told['known']):.0f} % known"
    sides = [rows.Bar(told[side], side) for side in ("before", "after")]
    return [rows.LookPair("Who asked, from the vectors", small, *sides)]


def _facts(told: Told) -> Iterator[tuple[str, str]]:
    """What is said in a line each; what has parts in as many as those have."""
    for key, value in told.items():
        if value in ("", None, [], {}):
            continue
        if isinstance(value, Mapping) and key not in ("vectors",):
            parts = {name: one for name, one in value.items() if one not in ("", None, [], {})}
            said = [bare(one) if name == "name" else f"{name} {bare(one)}" for name, one in parts.items()]
            yield _word(key), ", ".join(said)
        elif not isinstance(value, Mapping):
            several = isinstance(value, Sequence) and not isinstance(value, str)
            yield _word(key), ", ".join(map(bare, value)) if several else _plain(value)


def _plain(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else bare(value)


def _word(key: str) -> str:
    return WORDS.get(key, str(key).replace("_", " "))


def _hashes(told: Told) -> PageTable:
    """What was there before and after, by its hash."""
    found = []
    sides = {"vectors": told["done"].get("vectors"), **(told.get("model") or {})}
    for name, pair in sides.items():
        found += [[name, side, str(value)] for side, value in (pair or {}).items()]
    for side, one in (told.get("files") or {}).items():
        found.append([str(one["file"]), side, str(one["sha256"])])
    return PageTable(["what", "", "SHA-256"], found, (0, 1, 2))


def _lines(told: Any) -> Iterator[str]:
    """Entries of a list in words."""
    for one in told:
        yield ", ".join(f"{v}" for v in one.values()) if isinstance(one, Mapping) else str(one)
