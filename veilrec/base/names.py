"""Names of grants, readings and protocols of attacks; without torch, so that help answers at once."""

from __future__ import annotations

__all__ = ["GRANTS", "PROTOCOLS", "READINGS"]

GRANTS = {  # what a threat model may add to what the server saw, as every table prints it
    "interactions": "which items each user touched in training",
    "user_vectors": "the user vectors, where they are not uploaded",
    "withheld": "what a defence keeps on the device, to show what stays there",
    "tables": "the item tables that devices keep as their own",
    "lists": "the lists of items that users are shown",
    "former_vectors": "the user vectors from before an erasure",
}
READINGS = (
    *("updates", "parameters", "profile", "embeddings", "recovered", "withheld"),
    *("lists", "difference"),
)
PROTOCOLS = (  # in the order of `veilrec.lab.presets`, which has them whole
    *("veilrec", "pard", "pard-halves"),
    *("apm", "apm-four", "apm-columns", "apm-components"),
    *("aegis", "aegis-families", "fedau2", "fedau2-families", "fedau2-items"),
    *("fedau2-gradients", "dlg", "fedau2-uploads", "fedau2-recorded", "dlg-recorded"),
)
