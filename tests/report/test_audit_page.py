"""The page of an audit: it concludes, it says what next, and nothing in it runs or loads."""

from __future__ import annotations

import re
from typing import Any

from tests.audits import OUTSIDER, USERS, audience, audit_of
from tests.report.hostile import PAYLOADS
from tests.report.results import result
from veilrec.lab.anyone.audited import audited
from veilrec.lab.match_ids import Audience
from veilrec.metrics.vector_audits import VectorAudit
from veilrec.report import render, render_audit
from veilrec.report.audit.advice import advice
from veilrec.report.audit.words import conclusion


def words(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page[page.index("<body") :]).split())


def test_the_conclusion_comes_first_and_in_two_sentences() -> None:
    found = audit_of(3.0)
    said = conclusion(found)
    assert len(said) == 2
    assert said[0] in {
        "These vectors give away sex and age; coin was not found.",
        "These vectors give away age and sex; coin was not found.",
    }
    assert said[1].startswith("The worst is ")
    assert "severity high" in said[1]
    page = words(render_audit(found))
    assert (
        page.index(said[0])
        < page.index(said[1])
        < page.index("What was found")
        < page.index("What to do next")
    )
    assert page.index("high") < page.index("nothing shown"), "the worst tile stands first"
    assert f"v.npy: {USERS} users, 4 numbers each; attributes from users.csv." in page


def test_what_is_not_found_is_no_proof() -> None:
    said = conclusion(audit_of(0.0))
    assert re.fullmatch(
        r"The only attacker never reads \w+, \w+ or \w+ from these vectors better than chance\.", said[0]
    )
    assert "no proof" in said[1]
    told = [one.command for one in advice(audit_of(0.0)) if one.command]
    assert told == [
        "veilrec audit v.npy --attributes users.csv --by-position --fail-above 0.6",
        "veilrec audit v.npy --attributes users.csv --by-position --known 0.5",
    ]


def test_advice_is_by_command() -> None:
    commands = [one.command for one in advice(audit_of(3.0))]
    assert (
        "veilrec unlearn v.npy --attributes users.csv --by-position --attribute sex -o v-forgot.npy"
        in commands
    )
    place = commands.index("veilrec compare before.json after.json")
    assert commands[place - 2 : place] == [
        "veilrec audit v.npy --attributes users.csv --by-position --out before.json",
        "veilrec audit v-forgot.npy --attributes users.csv --by-position --out after.json",
    ]
    assert any("--control CONTROL" in command for command in commands)
    with_control = [one.command for one in advice(audit_of(3.0, 3.0))]
    assert not any("--control CONTROL" in command for command in with_control), "it has one"


def test_the_control_stands_beside_the_finding() -> None:
    page = words(render_audit(audit_of(3.0, 0.0)))
    assert "Does training put it there?" in page
    assert "what is more comes from training on a person&#39;s own data" in page
    assert f"control control.npy: {USERS} users" in page
    assert "Does training put it there?" not in words(render_audit(audit_of(3.0)))


def test_nothing_in_it_runs_or_loads_and_nobody_is_in_it() -> None:
    page = render_audit(audit_of(3.0, 0.0))
    assert "<script" not in page
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    assert "default-src &#39;none&#39;" in policy[1]
    assert "unsafe" not in policy[1]
    assert "person-0" not in page
    assert len(page) < 100_000
    assert page == render_audit(audit_of(3.0, 0.0))


def test_a_page_tells_of_which_audit_it_is() -> None:
    """By a mark of its numbers, whatever time it took."""
    one = audit_of(3.0)

    def mark(values: Any) -> str:
        found = re.search(r"Page of veilrec \S+; audit ([0-9a-f]{12})\.", render_audit(VectorAudit(values)))
        assert found
        return found[1]

    assert mark(one.values) == mark(timed(one.values))
    assert mark(one.values) != mark({**one.values, "seed": 1})


def timed(value: Any) -> Any:
    """The same audit on a slower machine."""
    if isinstance(value, dict):
        return {key: 9.0 if key == "seconds" else timed(entry) for key, entry in value.items()}
    return [timed(entry) for entry in value] if isinstance(value, list | tuple) else value


def test_words_are_told_where_they_are_used_and_bounds_are_bounds() -> None:
    both = audit_of(3.0)
    page = words(render_audit(both))
    assert "How well guesses of an amount are in order" in page
    assert "p ≤ 0.001" in page, "of 999 deals none is smaller"
    found = {**both.audit, "attributes": {"sex": both.audit["attributes"]["sex"]}}
    alone = words(render_audit(VectorAudit({**both.values, "audit": found})))
    assert "How well guesses of an amount are in order" not in alone


def renamed(value: Any, name: str) -> Any:
    """Values of an audit in which everything that is called NAME has another name, in all sentences too."""
    if isinstance(value, dict):
        return {renamed(key, name): renamed(entry, name) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [renamed(entry, name) for entry in value]
    return value.replace("NAME", name) if isinstance(value, str) else value


def test_hostile_words_stay_words() -> None:
    """The name of a file, of an attribute and of its classes, and the title."""
    usual = audience(3.0, users=60)
    named = Audience(
        usual.vectors,
        usual.ids,
        {"NAME": usual.labels["sex"]},
        {"NAME": ("NAME", "no NAME")},
        notes=("NAME",),
    )
    values = audited(OUTSIDER, named, ("NAME", "NAME")).values
    for payload in PAYLOADS:
        page = render_audit(VectorAudit(renamed(values, payload)), title=payload)
        assert "<script" not in page.casefold()
        assert page.count("<!--") == 0
        assert not re.search(r"<(img|iframe|base|form|math|input|video|a href=.java)", page)
        assert page.count("<svg") == page.count('<svg class="scale') > 0


def test_nobody_who_does_not_exist_is_warned_of() -> None:
    """The demo's people are made up: no page of runs speaks of personal data (B11)."""
    assert "personal data" not in render([("synthetic", result("laplace", 0))])
