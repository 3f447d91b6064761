"""Summaries beside the numbers of a result: the data in counts, and what it was computed with."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor

from veilrec.clients import Clients
from veilrec.engine.evaluation import Scored
from veilrec.engine.features import profile
from veilrec.interactions import Interactions, lots
from veilrec.metrics.resampling import mean, weights

__all__ = ["curves", "environment", "replicates", "summary"]

RESAMPLES = 500  # of users, for the interval of a metric
PACKAGES = ("veilrec", "torch", "numpy", "safetensors")


def summary(data: Interactions, clients: Clients, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A log and its split in counts; nobody's data in particular."""
    held = {"validation": clients.validation, "test": clients.test}
    return {
        "name": data.name,
        "users": data.n_users,
        "items": data.n_items,
        "events": len(data),
        "clients": len(clients),
        "training": len(clients.log),
        **{name: int((items >= 0).sum()) for name, items in held.items()},
        "attributes": {name: _classes(data, name) for name in data.attributes},
        "values": {name: _range(value) for name, value in data.values.items()},
        "features": _features(data, clients, settings),
        "report": list(data.report),
    }


def _classes(data: Interactions, attribute: str) -> dict[str, int]:
    """Count the users in each class; users of whom nothing is known are left out."""
    value = data.attributes[attribute]
    counts = torch.bincount(value[value >= 0].long().cpu()).tolist()
    names = list(data.classes.get(attribute, ()))
    names += [str(k) for k in range(len(names), len(counts))]
    return dict(zip(names, counts, strict=False))


def _features(data: Interactions, clients: Clients, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Features that devices know of their users and the model reads; None where it reads none."""
    if clients.log.features is None:
        return None
    private = bool(settings.get("data", {}).get("include_private_features"))
    names, log = list(clients.log.feature_names), clients.log
    if data.features is None:
        log = replace(log, user=log.user.cpu(), attributes=data.attributes)
        plain = profile(log, private=private)[0]
    else:
        plain = data.features
    return {
        "width": len(names) or plain.shape[1],
        "names": names,
        "include_private_features": private,
        "blurred": not torch.equal(plain, clients.log.features.cpu()),
    }


def _range(value: Tensor) -> dict[str, float]:
    """Count users with a continuous attribute, and take its mean."""
    told = value[~value.isnan()]
    return {"users": len(told), "mean": round(float(told.mean()), 2) if len(told) else 0.0}


def curves(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    """Metrics by round; None where a round was not looked at."""
    names = list(dict.fromkeys(name for row in rows for name in row if name == "loss" or "@" in name))
    found: dict[str, list[float | None]] = {"round": [row["round"] for row in rows]}
    return found | {n: [round(row[n], 6) if n in row else None for row in rows] for n in names}


def replicates(scored: Scored, data: Interactions, first: str) -> dict[str, list[float]]:
    """Every metric's mean under resampled users, one of them `first`; keyed by user: two runs pair up."""
    weight = weights(lots(data.user_ids, data.user, data.item)[scored.user], RESAMPLES)
    names = dict.fromkeys([first, *scored.values])
    return {n: [round(value, 5) for value in mean(scored.values[n], weight).tolist()] for n in names}


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, device and cores."""
    named = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "python": platform.python_version(),
        **{package: _version(package) for package in PACKAGES},
        "system": platform.system(),
        "device": str(device),
        "processor": named,
        "cores": os.cpu_count(),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from its sources
        return "unknown"
