"""Which worker of this machine a process is, as its launcher says."""

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
    """Return the number of this process among those of its machine; None where no launcher says.

    Kubernetes shows each pod its own devices, so nothing has to be said there.

    Raises
    ------
    ValueError
        A variable is no number.
    """
    for name in VARIABLES:
        if text := environment.get(name):
            if not text.isdecimal():
                raise ValueError(f"{name}={text!r} is not a local rank; it must be a number from 0")
            return int(text)
    return None
