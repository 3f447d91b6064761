"""Rows: what a receipt says about an attribute, as bars before and after, and as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from veilrec.metrics.measures import Measure, number_in, read
from veilrec.metrics.words import ABSENT, bare, bracketed, number, out_of_100
from veilrec.report.figures import PageTable

__all__ = ["Bar", "LookPair", "families", "later", "numbers", "pairs"]

Look = Mapping[str, Any]
SEEN = {"unseen": "Lists as users are shown them", "all": "Lists that may repeat what a user touched"}
ASKED = {
    "naive": "Those who asked, by who learns on all others",
    "adaptive": "Those who asked, by who first erases all others",
}


@dataclass(frozen=True)
class Bar:
    """One look as a bar: how often of 100 two users are told apart, from 50 on.

    Attributes:
        look: What was found.
        side: ``before`` or ``after``.
    """

    look: Look
    side: str

    @property
    def measured(self) -> bool:
        """Whether anybody looked."""
        return read(self.look.get("auc")) is not None

    @property
    def why(self) -> str:
        """The reason why nobody did."""
        return str(self.look.get("missing", ""))

    @property
    def leaks(self) -> bool:
        """Whether more was found than luck gives."""
        return self.look.get("leaning") in ("above", "below")

    @property
    def turned(self) -> bool:
        """Whether it is read turned round."""
        return self.look.get("leaning") == "below"

    @property
    def leakage(self) -> float:
        """Distance of the AUC from chance."""
        area = read(self.look.get("auc"))
        return min(0.5, abs(area.value - 0.5)) if area else 0.0

    @property
    def wide(self) -> str:
        """Percent of the way from a coin to certainty."""
        return f"{200 * self.leakage:.1f}"

    @property
    def ends(self) -> tuple[str, str] | None:
        """The ends of its interval on that way; None where nobody knows them."""
        area = read(self.look.get("auc"))
        if area is None or not area.sure:
            return None
        folded = area.folded(0.5)
        low, high = (max(0.0, min(0.5, one - 0.5)) for one in (folded.low, folded.high))
        return f"{200 * low:.1f}", f"{200 * high:.1f}"

    @property
    def floor(self) -> str:
        """Where luck ends once in twenty times; "" where nobody knows."""
        high = number_in(self.look.get("floor_high"))
        return f"{200 * min(0.5, max(0.0, high - 0.5)):.1f}" if high == high else ""

    @property
    def times(self) -> str:
        """How often of 100 two users are told apart."""
        return out_of_100(0.5 + self.leakage) if self.measured else ABSENT


@dataclass(frozen=True)
class LookPair:
    """The same look before and after."""

    name: str
    small: str
    before: Bar
    after: Bar


def pairs(entry: Mapping[str, Any]) -> Iterator[LookPair]:
    """Every look at an attribute that has two sides, the vectors first."""
    for row in entry.get("vectors") or ():
        yield LookPair(
            "Vectors", _known(row.get("known")), Bar(row["before"], "before"), Bar(row["after"], "after")
        )
    asked = entry.get("requesters") or {}
    for key, name in ASKED.items():
        if key in asked:
            yield LookPair(name, _known("others"), Bar(asked["before"], "before"), Bar(asked[key], "after"))
    for row in entry.get("lists") or ():
        name = SEEN.get(str(row.get("lists")), "Lists")
        small = f"{bare(row.get('length'))} items; {_known(row.get('known'))}"
        yield LookPair(name, small, Bar(row["before"], "before"), Bar(row["after"], "after"))
    if both := entry.get("difference"):
        small = f"{_known(both.get('known'))}; before: the old vectors alone"
        yield LookPair(
            "Old and new vectors in one hand",
            small,
            Bar(both["former"], "before"),
            Bar(both["both"], "after"),
        )
    if history := entry.get("history"):
        none = Bar({}, "before")
        yield LookPair("The history, which stays", _known(history.get("known")), none, Bar(history, "after"))


def _known(known: Any) -> str:
    if known == "others":
        return "labels of all others known"
    share = number_in(known)
    return f"{100 * share:.0f} % of labels known" if share == share else "labels known: unsaid"


def numbers(entry: Mapping[str, Any]) -> PageTable:
    """The numbers behind the bars."""
    head = [
        "what is read",
        "known",
        "attacked",
        "AUC before",
        "AUC after",
        "luck",
        "best attacker",
        "reads it",
    ]
    rows = []
    for pair in pairs(entry):
        look = pair.after.look
        rows.append(
            [
                f"{pair.name}; {pair.small}",
                bare(look.get("known_users")),
                bare(look.get("targets")),
                _area(pair.before),
                _area(pair.after),
                _luck(look),
                str(look.get("attacker", ABSENT)),
                _way(pair.after),
            ]
        )
    return PageTable(head, rows, (0, 6, 7))


def _area(bar: Bar) -> str:
    return bracketed(read(bar.look.get("auc")), 2) if bar.measured else bar.why or ABSENT


def _luck(look: Look) -> str:
    """The mean of luck, and what it reaches once in twenty times."""
    mean, high = (number_in(look.get(key)) for key in ("floor", "floor_high"))
    return f"{number(mean, 2)}, at most {number(high, 2)}" if mean == mean else ABSENT


def _way(bar: Bar) -> str:
    if not bar.measured:
        return ABSENT
    return "turned round" if bar.turned else "yes" if bar.leaks else "no"


def families(entry: Mapping[str, Any]) -> PageTable:
    """The AUC of every family on the vectors, before and after."""
    rows = [row for row in entry.get("vectors") or () if "auc" in row["before"] or "auc" in row["after"]]
    looks: list[tuple[str, Look]] = []
    for row in rows:
        looks += [(f"{_known(row.get('known'))}, {side}", row[side]) for side in ("before", "after")]
    asked = entry.get("requesters") or {}
    looks += [(f"those who asked, {key}", look) for key, look in asked.items() if "auc" in look]
    names = list(dict.fromkeys(name for _, look in looks for name in look.get("families") or ()))
    told = [[name, *(_family(look, name) for _, look in looks)] for name in names]
    return PageTable(["attacker", *(name for name, _ in looks)], told)


def _family(look: Look, name: str) -> str:
    value = number_in((look.get("families") or {}).get(name))
    return number(value, 2) if value == value else ABSENT


def later(entry: Mapping[str, Any]) -> PageTable:
    """What further training brings back."""
    rows = []
    for row in entry.get("later") or ():
        bar = Bar(row, "after")
        rows.append([bare(row.get("rounds")), _area(bar), _luck(row), _way(bar)])
    return PageTable(["rounds of training since", "AUC", "luck", "reads it"], rows, (0, 3))


def useful(found: Mapping[str, Any]) -> PageTable:
    """Usefulness of the same users before and after."""
    rows = []
    for name, entry in found.items():
        told = [read(entry.get(key)) or Measure(float("nan")) for key in ("before", "after", "difference")]
        cells: Sequence[str] = [bracketed(one, 4) for one in told[:2]]
        rows.append([name, *cells, bracketed(told[2], 4, sign=True), bare(entry.get("users"))])
    return PageTable(["usefulness", "before", "after", "difference, same users", "users"], rows)
