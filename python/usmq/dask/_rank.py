"""Reads the local rank of this process from its launcher's variables."""

import os
from collections.abc import Mapping

VARIABLES = (
    "SLURM_LOCALID",
    "OMPI_COMM_WORLD_LOCAL_RANK",  # Open MPI
    "MPI_LOCALRANKID",  # Intel MPI, MPICH
    "PALS_LOCAL_RANKID",  # HPE
    "MV2_COMM_WORLD_LOCAL_RANK",  # MVAPICH
    "FLUX_TASK_LOCAL_ID",
    "LOCAL_RANK",
)


def local_rank(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the local rank of this process on its machine; None if no launcher sets one.

    Kubernetes shows each pod only its own devices, so it needs no rank.

    Raises
    ------
    ValueError
        A variable is not a number.
    """
    for name in VARIABLES:
        if text := environment.get(name):
            if not text.isdecimal():
                raise ValueError(f"{name}={text!r} is not a local rank; it must be a number from 0")
            return int(text)
    return None
