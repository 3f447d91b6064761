"""Charts of leakage: attacker by attacker, part by part, group by group, and who touched what."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from veilrec.metrics.arms import Arm, Family
from veilrec.metrics.measures import Measure
from veilrec.metrics.words import bare, between, count, number, whole
from veilrec.report.figures import Chart, Figure, Table, Variant, rows_figure, ticks
from veilrec.report.verdicts import (
    MEASURES,
    attackers,
    floors,
    groups,
    measures,
    membership,
    parts,
    verdict,
)

__all__ = ["by_attacker", "by_group", "by_part", "touched"]

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
    tables: list[Table] = []
    for audit, attribute in _asked(family):
        title, start = family.title(audit, attribute), len(variants)
        for measure in measures(family, audit, attribute):
            variants.append(
                Variant(
                    f"{title}: {MEASURES[measure].name}", title, _attackers(family, audit, attribute, measure)
                )
            )
        mine = list(range(start, len(variants)))
        tables += [_attacker_table(family, audit, attribute, mine)] if mine else []
    caption = (
        "Each mark is an attacker with its 95 % interval; a bar leads to it from chance. Hollow: no leak "
        "shown, since the interval covers chance or p is not below 0.05. Lines are what guessing without "
        "looking gives. ★ gave a verdict, chosen on known users or, where nobody learns, by who reads most. "
        "An oracle was chosen with the truth in "
        "hand, which no real attacker has."
    )
    return Chart("attackers", "Leakage by attacker", caption, "Show", variants, tables)


def by_part(family: Family) -> Chart:
    """A chart of what each part of the model gives away, by attribute for each arm and by arm as well."""
    variants: list[Variant] = []
    tables: list[Table] = []
    asked = _asked(family)
    titles = {pair: family.title(*pair) for pair in asked}

    def add(name: str, group: str, rows: Sequence[tuple[str, dict[str, Measure]]]) -> None:
        if any(found for _, found in rows):
            tables.append(_part_table(rows, len(variants), name))
            variants.append(Variant(name, group, _heat(rows)))

    for arm in family.arms:
        add(
            f"{arm.label}: all attributes",
            "by defence",
            [(titles[pair], parts(arm, *pair)) for pair in asked],
        )
    if len(family.arms) > 1:
        for pair in asked:
            add(
                f"{titles[pair]}: all defences",
                "by attribute",
                [(arm.label, parts(arm, *pair)) for arm in family.arms],
            )
    caption = (
        "AUC of an attacker who sees that part alone, chance 0.5. The stronger the colour, the more leaks. "
        "A cell without colour, its number in brackets, has an interval that covers chance: no leak shown."
    )
    return Chart("parts", "Leakage by part of the model", caption, "Show", variants, tables)


def by_group(family: Family) -> Chart:
    """A chart of how often the guess is right within each group of users."""
    variants: list[Variant] = []
    tables: list[Table] = []
    for audit, attribute in _asked(family):
        found = {arm: groups(arm, audit, attribute) for arm in family.arms}
        keys = list(dict.fromkeys(key for one in found.values() for key in one))
        if not keys:
            continue
        users = {key: next(one[key][0] for one in found.values() if key in one) for key in keys}
        names = [f"{by}: {group} ({count(users[by, group])})" for by, group in keys]
        series = [(arm, [one[key][1] if key in one else None for key in keys]) for arm, one in found.items()]
        floor = {f"all: {kind}": at for kind, at in floors(family, audit, attribute, "micro_f1").items()}
        title = family.title(audit, attribute)
        tables.append(_rows_table("group", names, series, floor, len(variants), title))
        variants.append(
            Variant(title, audit, rows_figure(names, series, "how often the guess is right", floor))
        )
    caption = (
        "How often the verdict's attacker is right within each group, with the number of users and 95 % "
        "intervals. Lines are what guessing without looking gives over all users: always guessing the "
        "majority is right for everybody in one group and for nobody in the others."
    )
    return Chart("groups", "Groups of users", caption, "Guessing", variants, tables)


def touched(family: Family) -> Chart:
    """A chart of how well one upload tells which items a user touched."""
    variants: list[Variant] = []
    tables: list[Table] = []
    for audit in family.audits:
        found = {arm: membership(arm, audit) for arm in family.arms}
        keys = list(dict.fromkeys(key for one in found.values() for key in one))
        if keys:
            names = [WAYS.get(key, key) for key in keys]
            series = [(arm, [one.get(key) for key in keys]) for arm, one in found.items()]
            tables.append(_rows_table("told by", names, series, {"chance": 0.5}, len(variants), audit))
            drawing = rows_figure(names, series, "AUC: did this user touch this item", {"chance": 0.5}, 0.5)
            variants.append(Variant(audit, "", drawing))
    caption = (
        "From one upload of a user, without any label: can touched items be told from others? AUC with 95 % "
        "interval; 0.5 is chance, 1 is reading the history. What is surely below chance is turned round."
    )
    return Chart("membership", "Which items a user touched", caption, "Protocol", variants, tables)


def _asked(family: Family) -> list[tuple[str, str]]:
    return [(audit, attribute) for audit in family.audits for attribute in family.attributes(audit)]


def _attackers(family: Family, audit: str, attribute: str, measure: str) -> Figure:
    found = {arm: attackers(arm, audit, attribute) for arm in family.arms}
    keys = list(dict.fromkeys(name for one in found.values() for name in one))
    names = [
        _called(family, audit, attribute, key, any(one[key].oracle for one in found.values() if key in one))
        for key in keys
    ]

    def scores(arm: Arm) -> list[Measure | None]:
        return [found[arm][key].scores.get(measure) if key in found[arm] else None for key in keys]

    chance = MEASURES[measure].chance
    across = floors(family, audit, attribute, measure) or ({} if chance is None else {"chance": chance})
    if measure == "auc":
        across = {"chance": 0.5}
    base = chance if measure in {"auc", "spearman", "r2"} else None
    return rows_figure(
        names, [(arm, scores(arm)) for arm in family.arms], MEASURES[measure].words, across, base
    )


def _called(family: Family, audit: str, attribute: str, name: str, oracle: bool) -> str:
    """An attacker by name, starred where a verdict names it."""
    chosen = any(
        found and name in found.attackers for found in (verdict(arm, audit, attribute) for arm in family.arms)
    )
    return f"{name}{' (oracle)' if oracle else ''}{' ★' if chosen else ''}"


def _attacker_table(family: Family, audit: str, attribute: str, variants: Sequence[int]) -> Table:
    shown = measures(family, audit, attribute)
    head = ["defence", "attacker", "family", *(MEASURES[name].short for name in shown), "p"]
    rows = [
        [
            arm.label,
            f"{one.name}{' (oracle)' if one.oracle else ''}",
            one.family,
            *(whole(one.scores.get(name)) for name in shown),
            bare(one.p),
        ]
        for arm in family.arms
        for one in attackers(arm, audit, attribute).values()
    ]
    kinds = dict.fromkeys(kind for name in shown for kind in floors(family, audit, attribute, name))
    for kind in kinds:
        given = [floors(family, audit, attribute, name).get(kind) for name in shown]
        rows.append(["floor", kind, "", *(number(value) for value in given), "–"])
    return Table(head, rows, (0, 1, 2), variants, family.title(audit, attribute))


def _heat(rows: Sequence[tuple[str, dict[str, Measure]]]) -> Figure:
    """Rows by parts; what does not differ from chance has no colour."""
    keys = list(dict.fromkeys(part for _, found in rows for part in found))
    rows = [(name, found) for name, found in rows if found]

    def grid(what: Callable[[Measure], object]) -> list[list[object]]:
        return [[what(found[key]) if key in found else None for key in keys] for _, found in rows]

    plain: Figure = {"zeroline": False, "ticks": ""}
    return {
        "data": [{**HEAT, "z": grid(_depth), "text": grid(_number), "hovertext": grid(whole)}],
        "layout": {
            "height": 48 * len(rows) + 70,
            "showlegend": False,
            "xaxis": ticks(keys, 12, domain=[0, min(1.0, 0.2 * len(keys))], **plain),
            "yaxis": ticks([name for name, _ in rows], 18, autorange="reversed", **plain),
        },
    }


def _depth(one: Measure) -> float:
    """The strength of a cell's colour: 0.5 where no leak is shown."""
    return 0.5 if one.leaning(0.5) == "none" and one.sure else round(one.folded(0.5).value, 4)


def _number(one: Measure) -> str:
    """The number, in brackets where no leak is shown."""
    short = number(one.value, 2)
    return f"({short})" if one.sure and one.leaning(0.5) == "none" else short


def _part_table(rows: Sequence[tuple[str, dict[str, Measure]]], variant: int, title: str) -> Table:
    keys = list(dict.fromkeys(part for _, found in rows for part in found))
    body = [[name, *(whole(found.get(key)) for key in keys)] for name, found in rows if found]
    return Table(["", *keys], body, (0,), [variant], f"{title}; chance 0.5")


def _rows_table(
    what: str,
    names: Sequence[str],
    series: Sequence[tuple[Arm, Sequence[Measure | None]]],
    floor: dict[str, float],
    variant: int,
    title: str,
) -> Table:
    rows = [
        [arm.label, f"{name}{', turned round' if one and one.turned else ''}", *_cells(one)]
        for arm, ones in series
        for name, one in zip(names, ones, strict=True)
    ]
    rows += [["floor", name, number(at), "–"] for name, at in floor.items()]
    return Table(["defence", what, "value", "95 % interval"], rows, (0, 1), [variant], title)


def _cells(one: Measure | None) -> list[str]:
    return [number(one.value if one else None), between(one)]
