"""What PyTorch's env:// rendezvous needs, from what this process's launcher left behind."""

import os
import zlib
from typing import MutableMapping

# By launcher, its variables: rank, size, rank and ranks on the host, name of the job.
# MPICH names none, so its jobs on a host share a port.
LAUNCHERS = {
    "mpirun of Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                           "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
                           "PMIX_NAMESPACE"),
    "mpiexec of MPICH": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", ""),
}
# Below the ports that Linux gives to outgoing connections.
FIRST_PORT, PORTS = 12_000, 20_000


def launch_environment(environment: MutableMapping[str, str] = os.environ) -> None:
    """Sets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT where unset.

    Call it before torch.distributed.init_process_group. Under torchrun, or where RANK and
    WORLD_SIZE are set, it does nothing; under mpirun it says what mpirun's variables say; without
    a launcher this process is rank 0 of 1. On one host MASTER_ADDR is 127.0.0.1, and MASTER_PORT
    comes from the job's name, so that two jobs rarely meet; for several hosts set MASTER_ADDR to
    the host of rank 0 (mpirun -x MASTER_ADDR=...), else ValueError.
    """
    known = [name for name in ("RANK", "WORLD_SIZE") if name in environment]
    if len(known) == 2:
        return
    if known:
        raise ValueError(f"{known[0]} is {environment[known[0]]} and the other of RANK and "
                         "WORLD_SIZE is not set; set both, or neither and let mpirun say")
    launcher = next((name for name, (rank, size, *_) in LAUNCHERS.items()
                     if rank in environment and size in environment), None)
    if launcher is None:
        rank, size, local_rank, local_size, job = "0", "1", "0", "1", str(os.getpid())
    else:
        rank, size, local_rank, local_size, job = (environment.get(name)
                                                   for name in LAUNCHERS[launcher])
    if local_size != size and "MASTER_ADDR" not in environment:
        raise ValueError(f"rank {rank} of {size}: {launcher} started {local_size} ranks on this "
                         "host and MASTER_ADDR is not set; say where rank 0 runs, as in "
                         "mpirun -x MASTER_ADDR=host0")
    environment.update({"RANK": rank, "WORLD_SIZE": size})
    for name, value in (("LOCAL_RANK", local_rank), ("LOCAL_WORLD_SIZE", local_size)):
        if value is not None:
            environment.setdefault(name, value)
    environment.setdefault("MASTER_ADDR", "127.0.0.1")
    port = FIRST_PORT + zlib.crc32((job or "").encode()) % PORTS
    environment.setdefault("MASTER_PORT", str(port))
