"""Charts of leakage: attacker by attacker, part by part, group by group, and who touched what."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from veilrec.metrics.arms import Arm, Family
from veilrec.metrics.measures import Measure
from veilrec.metrics.words import bare, bracketed, number
from veilrec.report.figures import Chart, Figure, PageTable, Variant, drawing, rows_figure, ticks
from veilrec.report.names import attacker_words, part_words
from veilrec.report.verdicts import (
    MEASURES,
    SCALES,
    Attacker,
    attackers,
    floors,
    measures,
    membership,
    parts,
    verdict,
)

__all__ = ["by_attacker", "by_part", "touched"]

Key = TypeVar("Key", bound=Hashable)
Series = Sequence[tuple[Arm, Sequence[Measure | None]]]
Parts = Sequence[tuple[str, dict[str, Measure]]]  # by row

WAYS = {
    "rows": "the row was sent or changed",
    "norms": "how far the row moved",
    "direction": "where the row moved",
}
HEAT = {
    "type": "heatmap",
    "texttemplate": "%{text}",
    "textfont": {"size": 13},
    "hoverinfo": "text",
    "zmin": 0.5,
    "zmax": 1,
    "xgap": 3,
    "ygap": 3,
    "colorscale": "@heat",
    "showscale": False,
}


def by_attacker(family: Family) -> Chart:
    """Every attacker of every arm, by attribute and measure, with the floors across."""
    variants: list[Variant] = []
    for audit, attribute in _asked(family):
        title, shown = family.title(audit, attribute), measures(family, audit, attribute)
        table = _attacker_table(family, audit, attribute, shown)
        for name in shown:
            figure = _attackers(family, audit, attribute, name)
            variants.append(Variant(f"{title}: {MEASURES[name].name}", title, figure, table))
    caption = (
        "Each mark is an attacker with its 95 % interval; a bar leads to it from chance. Hollow: no leak "
        "shown, since the interval covers chance or p is not below 0.05. Lines are what guessing without "
        "looking gives. ★ gave a verdict, chosen on known users or, where nobody learns, by who reads most. "
        "An oracle was chosen with the truth in "
        "hand, which no real attacker has."
    )
    return Chart("attackers", "Leakage by attacker", caption, "Show", variants)


def by_part(family: Family) -> Chart:
    """A chart of what each part of the model gives away, by attribute for each arm and by arm as well."""
    titles = {pair: family.title(*pair) for pair in _asked(family)}
    rows: list[tuple[str, str, Parts]] = [
        (f"{arm.label}: all attributes", "by defence", [(titles[pair], parts(arm, *pair)) for pair in titles])
        for arm in family.arms
    ]
    for pair, title in titles.items() if len(family.arms) > 1 else ():
        found = [(arm.label, parts(arm, *pair)) for arm in family.arms]
        rows.append((f"{title}: all defences", "by attribute", found))
    caption = (
        "AUC of an attacker who sees that part alone, chance 0.5. The stronger the colour, the more leaks. "
        "A cell without colour, its number in brackets, has an interval that covers chance: no leak shown."
    )
    variants = [_heat(*one) for one in rows if any(found for _, found in one[2])]
    return Chart("parts", "Leakage by part of the model", caption, "Show", variants)


def touched(family: Family) -> Chart:
    """A chart of how well one upload tells which items a user touched."""
    variants: list[Variant] = []
    for audit in family.audits:
        found = {arm: membership(arm, audit) for arm in family.arms}
        keys, chance = _keys(found.values()), {"chance": 0.5}
        names = [WAYS.get(key, key) for key in keys]
        series = [(arm, [one.get(key) for key in keys]) for arm, one in found.items()]
        figure = rows_figure(names, series, "AUC: did this user touch this item", chance, 0.5)
        table = _rows_table("told by", names, series, chance, audit)
        variants += [Variant(audit, "", figure, table)] if keys else []
    caption = (
        "From one upload of a user, without any label: can touched items be told from others? AUC with 95 % "
        "interval; 0.5 is chance, 1 is reading the history. What is surely below chance is turned round."
    )
    return Chart("membership", "Which items a user touched", caption, "Protocol", variants)


def _asked(family: Family) -> list[tuple[str, str]]:
    return [(audit, attribute) for audit in family.audits for attribute in family.attributes(audit)]


def _keys(found: Iterable[Mapping[Key, Any]]) -> list[Key]:
    """Every key of any of them, once."""
    return list(dict.fromkeys(key for one in found for key in one))


def _attackers(family: Family, audit: str, attribute: str, measure: str) -> Figure:
    found = {arm: attackers(arm, audit, attribute) for arm in family.arms}
    keys = _keys(found.values())
    starred = {name for arm in found if (one := verdict(arm, audit, attribute)) for name in one.attackers}
    names = [_called(family, key, found.values(), key in starred) for key in keys]
    series = [
        (arm, [one[key].scores.get(measure) if key in one else None for key in keys])
        for arm, one in found.items()
    ]
    chance = MEASURES[measure].chance
    across = {} if measure == "auc" else floors(family, audit, attribute, measure)
    across = across or ({} if chance is None else {"chance": chance})
    return rows_figure(names, series, MEASURES[measure].words, across, chance if measure in SCALES else None)


def _called(family: Family, key: str, found: Iterable[Mapping[str, Attacker]], starred: bool) -> str:
    """An attacker by words, with what sets it apart."""
    sends = str((family.first.settings.get("protocol") or {}).get("sends", ""))
    oracle = any(key in one and one[key].oracle for one in found)
    return f"{attacker_words(key, sends)}{' (oracle)' * oracle}{' ★' * starred}"


def _attacker_table(family: Family, audit: str, attribute: str, shown: Sequence[str]) -> PageTable:
    head = ["defence", "attacker", "family", *(MEASURES[name].short for name in shown), "p"]
    rows = [
        [
            arm.label,
            f"{one.name}{' (oracle)' if one.oracle else ''}",
            one.family,
            *(bracketed(one.scores.get(name)) for name in shown),
            bare(one.p),
        ]
        for arm in family.arms
        for one in attackers(arm, audit, attribute).values()
    ]
    given = [floors(family, audit, attribute, name) for name in shown]
    rows += [["floor", kind, "", *(number(one.get(kind)) for one in given), "–"] for kind in _keys(given)]
    return PageTable(head, rows, (0, 1, 2), family.title(audit, attribute))


def _heat(name: str, group: str, rows: Parts) -> Variant:
    """Rows by parts; what does not differ from chance has no colour."""
    keys, rows = _keys(found for _, found in rows), [(row, found) for row, found in rows if found]

    def grid(what: Callable[[Measure], object]) -> list[list[object]]:
        return [[what(found[key]) if key in found else None for key in keys] for _, found in rows]

    plain: Figure = {"zeroline": False, "ticks": ""}
    figure = drawing(
        [{**HEAT, "z": grid(_depth), "text": grid(_number), "hovertext": grid(bracketed)}],
        [],
        height=48 * len(rows) + 70,
        showlegend=False,
        xaxis=ticks([part_words(key) for key in keys], 14, 3, domain=[0, min(1.0, 0.2 * len(keys))], **plain),
        yaxis=ticks([row for row, _ in rows], 18, autorange="reversed", **plain),
    )
    body = [[row, *(bracketed(found.get(key)) for key in keys)] for row, found in rows]
    return Variant(name, group, figure, PageTable(["", *keys], body, (0,), f"{name}; chance 0.5"))


def _depth(one: Measure) -> float:
    """The strength of a cell's colour: 0.5 where no leak is shown."""
    return 0.5 if one.leaning(0.5) == "none" and one.sure else round(one.folded(0.5).value, 4)


def _number(one: Measure) -> str:
    """The number, in brackets where no leak is shown."""
    short = number(one.value, 2)
    return f"({short})" if one.sure and one.leaning(0.5) == "none" else short


def _rows_table(
    what: str, names: Sequence[str], series: Series, floor: Mapping[str, float], title: str
) -> PageTable:
    rows = [
        [
            arm.label,
            f"{name}{', turned round' if one and one.turned else ''}",
            bracketed(one),
        ]
        for arm, ones in series
        for name, one in zip(names, ones, strict=True)
    ]
    rows += [["floor", name, number(at)] for name, at in floor.items()]
    return PageTable(["defence", what, "value [95 %]"], rows, (0, 1), title)
