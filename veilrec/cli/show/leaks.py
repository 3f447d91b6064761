"""Leaks: what attackers found out, as a person reads it; every number beside what guessing reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from veilrec.cli.show.tables import console, table

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["measure", "print_audit", "print_control", "print_verdicts", "printable"]

CLASS = {
    "auc": "AUC [95 %]",
    "balanced_accuracy": "balanced accuracy",
    "micro_f1": "accuracy",
    "tpr_at_1": "TPR at 1 % FPR",
}
VALUE = {"spearman": "rank correlation [95 %]", "r2": "R²", "mae": "mean error"}
FLOORS = {
    "majority": "always guessing {most}",
    "random": "guessing by frequency",
    "uniform": "guessing any of {count}",
}
FULL = ("auc", "spearman")  # scores that are shown with their interval


def print_audit(name: str, audit: Mapping[str, Any]) -> None:
    """One audit in full: who looks at what, a table an attribute, and a sentence for each."""
    out, threat = console(), audit.get("threat", {})
    out.print(f"Audit {printable(name)}: {printable(audit.get('sees', ''))}{_known(threat)}.", style="bold")
    for grant in audit.get("grants") or ():
        out.print(f"Granted: {printable(grant)}.")
    if audit.get("oracle"):
        out.print("Chosen with the truth in hand: an oracle that nobody has.", style="yellow")
    _print_soundness(audit)
    for attribute, entry in audit.get("attributes", {}).items():
        out.print()
        out.print(_title(attribute, entry), style="bold")
        out.print(_table(entry))
        _print_notes(entry)
        _print_verdict(attribute, entry, audit)
    _print_membership(audit)
    for curve in audit.get("uploads") or ():
        out.print(printable(curve.get("sentence")))
    if controls := audit.get("controls"):
        _print_controls(controls)


def _print_controls(controls: Sequence[Mapping[str, Any]]) -> None:
    """What the audit says of made-up tables, beside what it must say."""
    out, shown = (
        console(),
        table("control", "it must say", "attacker", "AUC [95 %]", "", right=("AUC [95 %]",)),
    )
    for one in controls:
        passed = bool(one.get("passed"))
        cells = [printable(one.get(key)) for key in ("control", "must_say", "attacker")]
        score = measure(one.get("auc"))
        shown.add_row(*cells, score, "says so" if passed else "does not", style=None if passed else "red")
    out.print(shown)
    missed = [str(one.get("control")) for one in controls if not one.get("passed")]
    if missed:
        said = (
            f"Controls not passed: {', '.join(missed)}. More attackers, or more known users, may find them."
        )
        out.print(printable(said), style="red")


def print_control(attributes: Mapping[str, Any]) -> None:
    """Main, control and blind, for each attribute that was tried on a control, and what it says."""
    tried = {name: entry["control"] for name, entry in attributes.items() if entry.get("control")}
    if not tried:
        return
    out = console()
    shown = table("control", "", "main", "control", "blind", right=("main", "control", "blind"))
    for name, one in tried.items():
        for key, reached in one["main"].items():
            head = {**CLASS, **VALUE}[key]
            blind = measure({"value": one["blind"][key]}, full=False)
            shown.add_row(printable(name), head, measure(reached), measure(one["control"][key]), blind)
    out.print()
    out.print(shown)
    for name, one in tried.items():
        out.print(f"{printable(name)}: {printable(one['sentence'])}")


def _known(threat: Mapping[str, Any]) -> str:
    """Name the users whose labels the attacker has; how many they are stands beside each attribute."""
    given = {
        "consenting": "those who share the attribute openly",
        "others": "those who did not ask for an erasure",
    }
    who = given.get(str(threat.get("known")))
    times = f"{threat['repeats']} times" if threat.get("repeats", 1) > 1 else ""
    if who:
        return f"; known are {who}{times and f', attacked {times}'}"
    known = f"; {100 * threat['known']:.0f} % of the users known" if "known" in threat else ""
    return f"{known}{times and f', drawn {times}'}"


def print_verdicts(audit: Mapping[str, Any]) -> None:
    """One line an attribute: the sentence of the verdict, and the AUC with its interval."""
    _print_soundness(audit)
    for attribute, entry in audit.get("attributes", {}).items():
        _print_verdict(attribute, entry, audit)
    _print_membership(audit)


def printable(text: object) -> str:
    """Text from anyone's file without control characters, so that it cannot move the cursor."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in str(text))


def measure(entry: Mapping[str, Any] | None, *, full: bool = True, digits: int = 3) -> str:
    """``0.780 [0.740, 0.820]``, or the value alone."""
    from veilrec.metrics.measures import read
    from veilrec.metrics.words import bracketed, number

    found = read(entry)
    return bracketed(found, digits) if full or found is None else number(found.value, digits)


def _title(attribute: str, entry: Mapping[str, Any]) -> str:
    counts = f"{entry['known']:,} users known, {entry['targets']:,} attacked"
    if entry["kind"] == "value":
        low, high = entry["range"]
        return f"{printable(attribute)}: {low:g} to {high:g}, {entry['mean']:.1f} on average; {counts}"
    pairs = list(zip(entry["classes"], entry["counts"], strict=True))
    shown = ", ".join(f"{printable(name)} {count:,}" for name, count in pairs[:6])
    more = f" and {len(pairs) - 6} more" if len(pairs) > 6 else ""
    return f"{printable(attribute)}: {shown}{more}; {counts}"


def _table(entry: Mapping[str, Any]) -> Table:
    """The attackers, the worst in bold, and below them what guessing reaches."""
    offered = CLASS if entry["kind"] == "class" else VALUE
    attackers = entry["attackers"]
    keys = [key for key in offered if any(key in one["scores"] for one in attackers)]
    heads = [offered[key] for key in keys]
    shown = table("attacker", *heads, "p", right=(*heads, "p"))
    worst = (entry.get("verdict") or {}).get("attacker")
    for one in attackers:
        cells = [measure(one["scores"].get(key), full=key in FULL) for key in keys]
        mark = " (oracle)" if one.get("oracle") else ""
        style = "bold" if one["name"] == worst else None
        shown.add_row(f"{printable(one['name'])}{mark}", *cells, _p(one.get("p")), style=style)
    for name, reached in entry.get("floors", {}).items():
        cells = ["–" if reached.get(key) is None else f"{reached[key]:.3f}" for key in keys]
        shown.add_row(_floor(name, entry), *cells, "", style="dim")
    return shown


def _floor(name: str, entry: Mapping[str, Any]) -> str:
    if entry["kind"] == "value":
        return f"always guessing the {printable(name)}"
    most = max(zip(entry["counts"], entry["classes"], strict=True), key=lambda pair: pair[0])[1]
    return FLOORS.get(name, name).format(most=printable(most), count=len(entry["classes"]))


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _print_notes(entry: Mapping[str, Any]) -> None:
    """Print what was lost on the way, once for all attackers that read the same."""
    losses = [(one.get("notes") or {}).get("loss") for one in entry["attackers"]]
    for loss in dict.fromkeys(loss for loss in losses if loss):
        console().print(f"Reading: {printable(loss)}.", style="dim")


def _print_soundness(audit: Mapping[str, Any]) -> None:
    """What in the audit's own input would make its numbers mean something else, a line each."""
    for one in audit.get("soundness") or ():
        console().print(f"Before you believe it: {printable(one.get('sentence'))}", style="yellow")


def _print_verdict(attribute: str, entry: Mapping[str, Any], audit: Mapping[str, Any]) -> None:
    verdict = entry.get("verdict")
    if not verdict:
        console().print(f"{printable(attribute)}: nobody tried, so nothing is known.", style="yellow")
        return
    _print_told(verdict, entry, audit)
    from veilrec.metrics.leaks import FEWER

    for fewer, who in FEWER.items():
        apart = entry.get(fewer)
        if apart and apart["verdict"]:
            lead = f"Without {apart['left_out']:g} of those attacked, {who}: "
            _print_told(apart["verdict"], entry, audit, lead)


def _print_told(
    verdict: Mapping[str, Any], entry: Mapping[str, Any], audit: Mapping[str, Any], lead: str = ""
) -> None:
    """The sentence of a verdict, and in brackets who it was."""
    score, families = verdict.get("score", "auc"), verdict.get("families", ())
    what = "AUC" if score == "auc" else "rank correlation"
    few = "" if len(families) >= 4 else f"; only {_count(families)} of attackers: more may find more"
    mark = ", an oracle" if _is_oracle(entry, audit, verdict["attacker"]) else ""
    luck = verdict.get("shuffled")
    beside = f"; with shuffled labels {measure(luck, full=False, digits=2)}" if luck else ""
    who = f"{printable(verdict['attacker'])}{mark}, {what} {measure(verdict[score])}{beside}{few}"
    style = "red" if verdict["leaning"] != "none" else "green"
    console().print(f"{lead}{printable(verdict['sentence'])} ({who})", style=style)


def _is_oracle(entry: Mapping[str, Any], audit: Mapping[str, Any], worst: str) -> bool:
    """Whether the attacker of a verdict was chosen, or guesses, with the truth in hand."""
    marked = any(one.get("oracle") for one in entry["attackers"] if one["name"] == worst)
    return marked or audit.get("threat", {}).get("selection") == "oracle"


def _count(families: Sequence[str]) -> str:
    return "one family" if len(families) == 1 else f"{len(families)} families"


def _print_membership(audit: Mapping[str, Any]) -> None:
    found = audit.get("membership")
    if not found:
        return
    from veilrec.metrics.measures import read
    from veilrec.metrics.words import bracketed

    worst, score = found["worst"], read(found[found["worst"]])
    shown = score and score.upright(0.5)
    turned = ", turned round," if shown and shown.turned else ""
    console().print(
        f"Whether a user touched an item, from one upload: AUC {bracketed(shown)}{turned} "
        f"by {printable(worst)}, over {found['users']:,} users and {found['items']:,} items."
    )
