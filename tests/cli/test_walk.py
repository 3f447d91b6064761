"""A walk: an engineer with a model of implicit and a file about users gets to a page in two commands.

Every word that they read is held here. Digits are written as #, since attackers may differ in the last of
them from one machine to the next, and so may who of them is the worst.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from veilrec.datasets.synthetic import synthetic

ROW = "#.### [#.###, #.###] #.### #.### #.### #.###"
LEARNERS = ("logistic", "mlp", "boosting", "forest", "knn", "svc", "qda")
AUDIT = f"""
als.npz, user_factors: ### users with a vector of ## numbers and attributes. Audit of vectors: one
vector of every user, and nothing else; ## % of the users known, drawn # times. gender: female ###, male
###; ## users known, ### attacked attacker AUC [## %] balanced accuracy accuracy TPR at # % FPR p
{" ".join(f"embeddings/{name} {ROW}" for name in LEARNERS)}
always guessing male #.### #.### #.### – guessing by frequency #.### #.### #.### – guessing any of #
#.### #.### #.### – An attacker who sees the user vectors guesses gender right for ## of ### users
(always saying male is right for ##). (embeddings/WHO, AUC #.### [#.###, #.###]; with shuffled labels #.##)
Saved:
audit.json
"""
PAGE = """
Skip to the conclusion veilrec audit What these vectors give away about their users als.npz
(user_factors): ### users, ## numbers each; attributes from users.csv. These vectors give away gender.
How surely: given a female and a male user, an attacker tells which is which ## times of ###, a coin ##
(severity high). gender high ## of ### pairs told apart; a coin: ## low medium high #.# # AUC
#.### [#.###, #.###]; chance #.# What was found An attacker who sees the user vectors
guesses gender right for ## of
### users (always saying male is right for ##). WHO, AUC #.### [#.###, #.###]; chance #.#; with shuffled
labels
#.##. What to do next Treat these vectors as what they tell: personal data, with the gender of each user
in it. Who may not see the one should not get the other. Take the gender out of the vectors, with the
array of users saved as npy. Forget only what must go, for each attribute costs usefulness; measure
that; delete the old file and its copies once you have: veilrec unlearn als.npy --attributes users.csv
--by-position --attribute gender -o als-forgot.npy Save this audit, before the old file goes: veilrec
audit als.npz --attributes users.csv --by-position --out before.json Audit what comes out in the same
way: veilrec audit als-forgot.npy --attributes users.csv --by-position --out after.json See what changed
on the same people: veilrec compare before.json after.json Find out whether training on a person's own
data puts it there, or it is true of anybody like them: give vectors of people on whom nothing was
trained. veilrec audit als.npz --attributes users.csv --by-position --control CONTROL Keep it from
coming back: in a pipeline, this ends with exit code # above an AUC of #.#. veilrec audit als.npz
--attributes users.csv --by-position --fail-above #.# How it was measured
"""
FORGOT = """
attribute score before after difference gender AUC #.### [#.###, #.###] #.### [#.###, #.###] −#.###
[−#.###, −#.###] Before: audit.json. After: after.json. The same ### users, in pairs. gender leaks less
after: AUC #.### before, #.### after, difference −#.### [−#.###, −#.###]. These attackers find nothing
of it any more. True of these two files; vectors of another training may differ. How useful the vectors
still are, an audit does not tell: measure that as well.
"""


def said(text: str) -> str:
    """What somebody reads, whatever the width of their screen: words and #."""
    text = re.sub(r"embeddings/\w+, AUC", "embeddings/WHO, AUC", text)
    return " ".join(re.sub(r"[0-9]", "#", text.replace("─", " ")).split())


def shown(page: str) -> str:
    """The words of a page up to its details."""
    body = page[page.index("<body") : page.index("<dl>")]
    words = re.sub(r"<[^>]*>", " ", body).replace("&#39;", "'")
    words = re.sub(r"##\)\. [a-z ]+, AUC", "##). WHO, AUC", said(words))
    return re.sub(r" ([.,;:])", r"\1", words)


def veilrec(place: Path, *words: str) -> str:
    """A command as they type it; what it says while it works is of the moment, and no error."""
    done = subprocess.run(
        [sys.executable, "-m", "veilrec", *words],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert all(line.startswith("attack on embeddings/") for line in done.stderr.splitlines())
    return done.stdout


@pytest.mark.slow
def test_from_a_model_of_implicit_to_a_page_in_two_commands(tmp_path: Path) -> None:
    """And, because the page says so, on to vectors that have forgotten."""
    world = synthetic()
    touched = np.zeros((world.n_users, world.n_items), np.float32)
    touched[world.user, world.item] = 1
    left, sizes, right = np.linalg.svd(touched, full_matrices=False)
    factors = {"user_factors": left[:, :16] * sizes[:16], "item_factors": right[:16].T}
    np.savez(tmp_path / "als.npz", **factors, regularization=0.01, factors=16, dtype="float32")
    words = [world.classes["gender"][k] for k in world.attributes["gender"].tolist()]
    rows = [f"{name},{word}" for name, word in zip(world.user_ids, words, strict=True)]
    (tmp_path / "users.csv").write_text("\n".join(["user_id,gender", *rows]) + "\n")
    known = ("--attributes", "users.csv", "--by-position")

    first = veilrec(tmp_path, "audit", "als.npz", *known, "--out", "audit.json")
    assert said(first) == " ".join(AUDIT.split())
    second = veilrec(tmp_path, "report", "audit.json", "-o", "report.html")
    assert second == "Report: report.html\n"
    assert shown((tmp_path / "report.html").read_text()) == " ".join(PAGE.split())

    np.save(tmp_path / "als.npy", factors["user_factors"])
    veilrec(tmp_path, "unlearn", "als.npy", *known, "--attribute", "gender", "-o", "als-forgot.npy")
    veilrec(tmp_path, "audit", "als-forgot.npy", *known, "--out", "after.json")
    assert said(veilrec(tmp_path, "compare", "audit.json", "after.json")) == " ".join(FORGOT.split())
