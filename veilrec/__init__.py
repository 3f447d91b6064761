"""veilrec trains recommenders on data that never leaves devices, measures what leaks, and makes it forget.

The package is one line, and its modules are the stations:

    interactions → clients → rounds → uploads → attack → metrics → report
                        └─ defences act on the way ─┘  └─ erasers act after it

What to read first, and in which order, stands in docs/architecture.md. Each module is a contract or a step
of the line; along the line:

    interactions    a log of users and the items they touched
    clients         that log, cut by device
    examples        what devices read in a round
    model           a recommender as one device sees it
    protocol        what crosses the wire, how it is folded, what the server does
    defence         the places where a method may act during training
    rounds          the loop over all of these, in one screen
    eraser          what is applied to the finished state
    attack          what is guessed about users from what the server saw
    result          all that a run says about itself
    experiment      the parts of a run, put together
    errors          the errors for users, with their exit codes
    __main__        ``python -m veilrec``

A folder with a plural name beside a contract is its catalogue, one entry a file; the other folders are rooms,
and the first line of each ``__init__`` says what for.
"""

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.2.0"

HOMES = {  # where the public names live; imported when first asked for, so that `--help` is quick
    "Attack": "attack",
    "Clients": "clients",
    "Defence": "defence",
    "Evaluation": "engine.evaluation",
    "Experiment": "experiment",
    "FedAvg": "protocols.fedavg",
    "FedMF": "models.fedmf",
    "FedNCF": "models.fedncf",
    "Federation": "rounds",
    "Interactions": "interactions",
    "Plan": "base.plan",
    "Protocol": "protocol",
    "Recipe": "recipe",
    "Recommender": "model",
    "Result": "result",
    "Threat": "lab.threat",
    "audit": "report.audit.live",
    "chain": "defence",
    "synthetic": "datasets.synthetic",
}
__all__ = ["__version__", *HOMES]


CATALOGUES = ("defences", "erasers", "models")  # whose entries are public names as well


def __getattr__(name: str) -> Any:
    home = HOMES.get(name) or ("" if name.startswith("_") else _entries().get(name))
    if not home:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_entries()})


@cache
def _entries() -> dict[str, str]:
    """Where each entry of the catalogues lives, as its file says: nothing is imported to find out."""
    found: dict[str, str] = {}
    for folder in CATALOGUES:
        for path in (Path(__file__).parent / folder).glob("[!_]*.py"):
            listed = re.search(r"^__all__ = \[([^\]]*)\]", path.read_text(encoding="utf-8"), re.MULTILINE)
            names = re.findall(r'"([A-Z]\w+)"', listed[1]) if listed else []
            found |= dict.fromkeys(names, f"{folder}.{path.stem}")
    return found
