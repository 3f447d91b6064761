"""veilrec trains recommenders on data that never leaves devices, measures what leaks, and makes it forget.

The package is one line, and its modules are the stations:

    interactions → clients → rounds → uploads → attack → metrics → report
                        └─ defences act on the way ─┘
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

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
    "chain": "defence",
    "synthetic": "datasets.synthetic",
}
__all__ = ["__version__", *HOMES]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
