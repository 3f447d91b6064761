"""MovieLens-1M: 6,040 users, 3,706 rated films, 1,000,209 ratings; gender, age band and occupation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from veilrec.base.limits.bounds import Age, Seed, bounded
from veilrec.datasets.common.movielens import GENDERS, File, Release, load
from veilrec.datasets.common.published import beginning
from veilrec.datasets.reading.archives import files
from veilrec.datasets.reading.people import Attribute, declared
from veilrec.datasets.reading.table import TextTable
from veilrec.errors import BadInput
from veilrec.interactions import Interactions

__all__ = ["ml_1m"]

BANDS = (1, 18, 25, 35, 45, 50, 56)  # first years of the published age bands
OCCUPATIONS = (
    *("other or not said", "academic or educator", "artist", "clerical or admin", "college or grad student"),
    *("customer service", "doctor or health care", "executive or managerial", "farmer", "homemaker"),
    *("K-12 student", "lawyer", "programmer", "retired", "sales or marketing", "scientist", "self-employed"),
    *("technician or engineer", "tradesman or craftsman", "unemployed", "writer"),
)
EVENT = ("user", "item", "rating", "time")
PERSON = ("user", "gender", "age", "occupation", "zip")
FILM = ("item", "title", "genres")
RELEASE = Release(
    "ml-1m",
    ("::", File("ratings.dat", EVENT, EVENT)),
    ("::", File("users.dat", PERSON, PERSON[:4])),
    ("::", File("movies.dat", FILM, FILM[:2], "latin-1")),
)


@bounded("data")
def ml_1m(
    path: Path, *, ages: Sequence[Age] = BANDS[1:], strict: bool = False, split_seed: Seed = 0
) -> Interactions:
    r"""MovieLens-1M as published.

    Its three files are read, of which only the log must be there:

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "ratings.dat").write_text("1::1193::5::978300760\n")
    ...     _ = (Path(folder) / "users.dat").write_text("1::F::1::10::48067\n")
    ...     log = ml_1m(Path(folder))
    >>> log.user_ids, log.item_ids, log.rating, log.time
    (['1'], ['1193'], tensor([5.]), tensor([978300760]))
    >>> {name: log.classes[name][label] for name, label in log.attributes.items()}
    {'gender': 'female', 'age': 'under 18', 'occupation': 'K-12 student'}

    Args:
        path: The folder ``ml-1m``, its zip, or a folder that holds one of them.
        ages: First years of the second and later age groups, each the start of a published band. All of
            them by default, which gives the seven bands; ``(35, 45)`` gives the three groups of APM and
            PARD (under 35, 35 to 44, 45 and over: the band 45 to 49 cannot be cut at 45).
        strict: Turn everything that would be reported into an error.
        split_seed: Decides the order of events at the same time, and so what is held out.
    """
    cuts = tuple(ages)
    if not cuts or list(cuts) != sorted(set(cuts)) or not set(cuts) <= set(BANDS[1:]):
        raise BadInput(
            "data.ages", f"{list(cuts)} are not bands", f"choose from {list(BANDS[1:])}, ascending"
        )
    groups = np.array([*(sum(cut <= band for cut in cuts) for band in BANDS), -1])  # unknown is -1, the last

    def attributes(table: TextTable) -> Mapping[str, Attribute]:
        band = declared(table, "age", {str(start): str(start) for start in BANDS})
        return {
            "gender": declared(table, "gender", GENDERS),
            "age": Attribute(groups[band.codes], beginning(cuts)),
            "occupation": declared(table, "occupation", {str(n): name for n, name in enumerate(OCCUPATIONS)}),
        }

    return load(
        RELEASE, files(Path(path), "ratings.dat", "ml-1m"), attributes, strict=strict, split_seed=split_seed
    )
