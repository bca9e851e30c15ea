"""Starts the ranks of a comparison, on this host or one in each of several network namespaces."""

import json
import os
import pathlib
import socket
import subprocess
import sys
from typing import Iterator

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests" / "system" / "chaos"))
from hosts import Hosts  # noqa: E402  (namespaces, as the chaos tests use them)

PORT_BETWEEN_HOSTS = 29_500  # in namespaces, where nobody else listens


class Here:
    """All ranks on this host, as torchrun starts them, or rank r pinned to core r mod cores."""

    def __init__(self, count: int, pin: bool = False):
        self.count, self.pin = count, pin
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    def command(self, rank: int) -> list[str]:
        if not self.pin:
            return []
        cores = sorted(os.sched_getaffinity(0))
        return ["taskset", "-c", str(cores[rank % len(cores)])]

    def variables(self, rank: int) -> dict[str, str]:
        return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port), "LOCAL_RANK": str(rank)}

    def remove(self) -> None:
        pass


class Between:
    """One rank on each of `count` hosts, whose wires carry `rate` in each direction; needs root."""

    def __init__(self, count: int, rate: str):
        self.count = count
        self.hosts = Hosts(count, rate=rate)

    def command(self, rank: int) -> list[str]:
        return ["ip", "netns", "exec", self.hosts.space(rank)]

    def variables(self, rank: int) -> dict[str, str]:
        wire = self.hosts.interface()
        return {"MASTER_ADDR": self.hosts.address(0), "MASTER_PORT": str(PORT_BETWEEN_HOSTS),
                "LOCAL_RANK": "0", "GLOO_SOCKET_IFNAME": wire, "SPRAT_INTERFACE": wire,
                "SPRAT_HOST": f"host{rank}"}

    def remove(self) -> None:
        self.hosts.remove()


def results(place: Here | Between, program: str, options: dict) -> Iterator[dict]:
    """Runs `program` as ranks of `place` and yields what rank 0 prints, a JSON object a line."""
    processes = []
    try:
        for rank in range(place.count):
            processes.append(subprocess.Popen(
                place.command(rank) + [sys.executable, str(HERE / program), json.dumps(options)],
                env={**os.environ, "OMP_NUM_THREADS": "1", "RANK": str(rank),
                     "WORLD_SIZE": str(place.count), **place.variables(rank)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if rank == 0 else sys.stderr, text=True))
        for line in processes[0].stdout:
            yield json.loads(line)
        statuses = [process.wait(60) for process in processes]
        if any(statuses):
            raise SystemExit(f"torch_compare: the ranks of {program} ended with {statuses}; "
                             "their messages are above")
    finally:
        for process in processes:
            process.kill()
            process.wait()
        place.remove()
