"""MovieLens-100K: 943 users, 1,682 films, 100,000 ratings; gender, age and occupation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from veilrec.base.limits.bounds import Age, Seed, bounded
from veilrec.datasets.common.movielens import GENDERS, File, Release, load
from veilrec.datasets.reading.archives import files
from veilrec.datasets.reading.people import Amounts, Attribute, amounts, binned, declared
from veilrec.datasets.reading.table import TextTable
from veilrec.interactions import Interactions

__all__ = ["ml_100k"]

OCCUPATIONS = (
    *("administrator", "artist", "doctor", "educator", "engineer", "entertainment", "executive"),
    *("healthcare", "homemaker", "lawyer", "librarian", "marketing", "none", "other", "programmer"),
    *("retired", "salesman", "scientist", "student", "technician", "writer"),
)
EVENT = ("user", "item", "rating", "time")
PERSON = ("user", "age", "gender", "occupation", "zip")
FILM = ("item", "title", "release", "video", "address", *(f"genre {n}" for n in range(19)))
RELEASE = Release(
    "ml-100k",
    ("\t", File("u.data", EVENT, EVENT)),
    ("|", File("u.user", PERSON, PERSON[:4])),
    ("|", File("u.item", FILM, FILM[:2], "latin-1")),
)


@bounded("data")
def ml_100k(
    path: Path, *, ages: Sequence[Age] = (35, 45), strict: bool = False, split_seed: Seed = 0
) -> Interactions:
    r"""MovieLens-100K as published; ``age`` is in groups, ``age in years`` as it was given.

    Its three files are read, of which only the log must be there:

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "u.data").write_text("196\t242\t3\t881250949\n")
    ...     _ = (Path(folder) / "u.user").write_text("196|49|M|writer|55105\n")
    ...     log = ml_100k(Path(folder))
    >>> log.user_ids, log.item_ids, log.rating, log.time
    (['196'], ['242'], tensor([3.]), tensor([881250949]))
    >>> {name: log.classes[name][label] for name, label in log.attributes.items()}
    {'gender': 'male', 'age': 'over 45', 'occupation': 'writer'}

    Args:
        path: The folder ``ml-100k``, its zip, or a folder that holds one of them.
        ages: Borders of the age groups: by default under 35, 35 to 45, over 45 (APM, PARD).
        strict: Turn everything that would be reported into an error.
        split_seed: Decides the order of events at the same time, and so what is held out.
    """

    def attributes(table: TextTable) -> Mapping[str, Attribute]:
        return {
            "gender": declared(table, "gender", GENDERS),
            "age": binned(table, "age", ages, low=1, high=120),
            "occupation": declared(table, "occupation", {name: name for name in OCCUPATIONS}),
        }

    def values(table: TextTable) -> Mapping[str, Amounts]:
        return {"age in years": amounts(table, "age", low=1, high=120)}

    found = files(Path(path), "u.data", "ml-100k")
    return load(RELEASE, found, attributes, values, strict=strict, split_seed=split_seed)
