"""Vectors to try `veilrec audit` and `veilrec unlearn` on: synthetic people, 16 numbers each by SVD.

``python recipes/vectors.py`` writes vectors.npy and users.csv into the current folder.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from veilrec import synthetic

log = synthetic()
touched = np.zeros((len(log.user_ids), len(log.item_ids)), np.float32)
touched[log.user.numpy(), log.item.numpy()] = 1
left, sizes, _ = np.linalg.svd(touched - touched.mean(0), full_matrices=False)
np.save("vectors.npy", left[:, :16] * sizes[:16])
with Path("users.csv").open("w", newline="", encoding="utf-8") as file:
    rows = csv.writer(file)
    rows.writerow(["user", *log.classes])
    for k, user in enumerate(log.user_ids):
        rows.writerow([user, *(names[log.attributes[name][k]] for name, names in log.classes.items())])
