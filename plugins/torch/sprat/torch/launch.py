"""What PyTorch's env:// rendezvous needs, from what this process's launcher left behind."""

import os
import re
import zlib
from typing import Mapping, MutableMapping, NamedTuple


class _Launcher(NamedTuple):
    """What a launcher calls its variables. One that does not speak of hosts has no local ones."""

    name: str
    rank: str
    size: str
    local_rank: str = ""
    local_size: str = ""
    job: tuple[str, ...] = ()  # MPICH names none, so its jobs on a host share a port.
    pass_on: str = "mpirun -x MASTER_ADDR=host0"  # How a job of several hosts is told rank 0's.

    def started(self, environment: Mapping[str, str]) -> bool:
        wanted = (self.rank, self.size, self.local_rank)
        return all(name in environment for name in wanted if name)


# In this order: mpirun and mpiexec start their own daemons by srun, which leaves its variables too.
# SLURM_NTASKS would not do: a batch script has it, though srun has started none of its processes.
LAUNCHERS = (
    _Launcher("mpirun of Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
              "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", ("PMIX_NAMESPACE",)),
    _Launcher("mpiexec of MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    _Launcher("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
              "SLURM_STEP_TASKS_PER_NODE", ("SLURM_JOB_ID", "SLURM_STEP_ID"),
              "MASTER_ADDR=$(scontrol show hostnames | head -n 1) srun ..."),
    _Launcher("a launcher that speaks PMI", "PMI_RANK", "PMI_SIZE"),
)
# What says that a launcher started this process, though not how many others.
HALF_SAID = ("PMIX_RANK", "PMI_RANK")
# Below the ports that Linux gives to outgoing connections.
FIRST_PORT, PORTS = 12_000, 20_000


def launch_environment(environment: MutableMapping[str, str] = os.environ) -> None:
    """Sets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT where unset.

    Call it before torch.distributed.init_process_group. Under torchrun, or where RANK and
    WORLD_SIZE are set, it does nothing; under mpirun and srun it says what their variables say;
    without a launcher this process is rank 0 of 1. On one host MASTER_ADDR is 127.0.0.1, and
    MASTER_PORT comes from the job's name, so that two jobs rarely meet; for several hosts set
    MASTER_ADDR to the host of rank 0 (mpirun -x MASTER_ADDR=...), else ValueError. ValueError too
    where a launcher gives a rank without a size: each rank would take itself for a whole job.
    """
    known = [name for name in ("RANK", "WORLD_SIZE") if name in environment]
    if len(known) == 2:
        return
    if known:
        raise ValueError(f"{known[0]} is {environment[known[0]]} and the other of RANK and "
                         "WORLD_SIZE is not set; set both, or neither and let mpirun say")
    launcher = next((one for one in LAUNCHERS if one.started(environment)), None)
    if launcher is None:
        half = next((name for name in HALF_SAID if name in environment), None)
        if half is not None:
            raise ValueError(f"{half} is {environment[half]}, so a launcher started this process, "
                             "and nothing says how many ranks there are; set RANK and WORLD_SIZE")
        rank, size, local_rank, local_size, job = "0", "1", "0", "1", str(os.getpid())
    else:
        rank, size = environment[launcher.rank], environment[launcher.size]
        local_rank = environment.get(launcher.local_rank)
        local_size = _on_this_host(environment.get(launcher.local_size), environment)
        job = ".".join(environment.get(name, "") for name in launcher.job)
        if local_size != size and "MASTER_ADDR" not in environment:
            raise ValueError(f"rank {rank} of {size}: {launcher.name} started {local_size} ranks "
                             "on this host and MASTER_ADDR is not set; say where rank 0 runs, as "
                             f"in {launcher.pass_on}")
    environment.update({"RANK": rank, "WORLD_SIZE": size})
    for name, value in (("LOCAL_RANK", local_rank), ("LOCAL_WORLD_SIZE", local_size)):
        if value is not None:
            environment.setdefault(name, value)
    environment.setdefault("MASTER_ADDR", "127.0.0.1")
    port = FIRST_PORT + zlib.crc32(job.encode()) % PORTS
    environment.setdefault("MASTER_PORT", str(port))


def launched(environment: Mapping[str, str]) -> bool:
    """Whether one of these launchers, which are not torchrun, started this process."""
    return (any(one.started(environment) for one in LAUNCHERS)
            or any(name in environment for name in HALF_SAID))


def _on_this_host(counts: str | None, environment: Mapping[str, str]) -> str | None:
    """"3" of "3", and of Slurm's "4(x2),3" on its third host."""
    if counts is None or counts.isdecimal():
        return counts
    hosts: list[str] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", counts):
        hosts += [count] * int(times or 1)
    host = int(environment.get("SLURM_NODEID", "0"))
    return hosts[host] if host < len(hosts) else None
