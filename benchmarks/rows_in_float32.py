"""Changes taken in float32 and rows of them summed so within a chunk, as before all was in float64."""

import torch

from veilrec.base.rows import along
from veilrec.protocols import fedavg

TOUCHED = fedavg.TOUCHED


def _fold_rows(self, partial, name, server, upload, share):
    """Rows are summed within the chunk, then added in float64; padding goes to a row nobody reads."""
    if name not in partial:
        partial[name] = server.new_zeros(server.shape, dtype=torch.float64)
        if self.weigh == "touched":
            partial[TOUCHED + name] = server.new_zeros(len(server), dtype=torch.float64)
    row, value = upload.row.reshape(-1), upload.value.flatten(0, 1)
    # In place and with the sign turned: tables are large, and every copy is a walk through memory.
    change = -value if self.sends_gradients else server.index_select(0, row.clamp(min=0)).sub_(value)
    if self.weigh == "examples":
        each = share.to(change.dtype).repeat_interleave(upload.row.shape[1])
        change = change * along(each, change)
    place = torch.where(row < 0, len(server), row)
    total = server.new_zeros(len(server) + 1, *server.shape[1:])
    total.scatter_add_(0, along(place, change).expand_as(change), change)
    partial[name] -= total[:-1]
    if self.weigh == "touched":
        count = torch.bincount(place, minlength=len(server) + 1)
        partial[TOUCHED + name] += count[:-1]


def _based(self, value, server, row=None):
    """The server's weights are taken off each upload, not off the sum."""
    return (value if self.sends_gradients else value - server), None


fedavg.FedAvg._fold_rows = _fold_rows
fedavg.FedAvg._based = _based
