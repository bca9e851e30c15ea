"""Jobs whose ranks wait for their turn: where ranks run, and samples taken in turns."""

import atexit
import json
import os
import pathlib
import selectors
import socket
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests" / "system" / "chaos"))
from hosts import Hosts  # noqa: E402  (namespaces, as the chaos tests use them)

PORT_BETWEEN_HOSTS = 29_600  # in namespaces, where nobody else listens; one more for each job
CORES = sorted(os.sched_getaffinity(0))


def pinned(rank: int) -> list[str]:
    return ["taskset", "-c", str(CORES[rank % len(CORES)])]


class Here:
    """All ranks on this host, rank r on core r mod cores unless they are not pinned."""

    def __init__(self, count: int, pin: bool):
        self.count, self.pin = count, pin

    def text(self) -> str:
        return f"{self.count} ranks on {len(CORES)} cores, {'' if self.pin else 'not '}pinned"

    def meeting(self) -> dict[str, str]:
        """For one job."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}

    def command(self, rank: int) -> list[str]:
        return pinned(rank) if self.pin else []

    def variables(self, rank: int) -> dict[str, str]:
        return {"LOCAL_RANK": str(rank)}

    def remove(self) -> None:
        pass


class Between:
    """`per_host` ranks on each of `hosts` hosts, whose wires carry `rate` in each direction; needs root."""

    def __init__(self, hosts: int, per_host: int, rate: str, pin: bool):
        self.count, self.per_host, self.rate, self.pin = hosts * per_host, per_host, rate, pin
        self.jobs = 0
        self.hosts = Hosts(hosts, rate=rate)

    def text(self) -> str:
        return (f"{self.hosts.count} hosts of {self.per_host} ranks, wires of {self.rate}, all on "
                f"{len(CORES)} cores, {'' if self.pin else 'not '}pinned")

    def meeting(self) -> dict[str, str]:
        self.jobs += 1
        return {"MASTER_ADDR": self.hosts.address(0),
                "MASTER_PORT": str(PORT_BETWEEN_HOSTS + self.jobs)}

    def command(self, rank: int) -> list[str]:
        space = self.hosts.space(rank // self.per_host)
        return ["ip", "netns", "exec", space, *(pinned(rank) if self.pin else [])]

    def variables(self, rank: int) -> dict[str, str]:
        wire = self.hosts.interface()
        return {"LOCAL_RANK": str(rank % self.per_host), "GLOO_SOCKET_IFNAME": wire,
                "SPRAT_INTERFACE": wire, "SPRAT_TOKEN": "of this run", "SPRAT_HOST": f"host{rank // self.per_host}"}

    def remove(self) -> None:
        self.hosts.remove()


Place = Here | Between


def bits_of(rate: str) -> float:
    """Bits per second of a rate as tc writes it."""
    for unit, scale in (("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3)):
        if rate.endswith(unit):
            return float(rate.removesuffix(unit)) * scale
    raise SystemExit(f"bench/fsdp: a rate of {rate}; write it as 1gbit or 500mbit")


def start(place: Place, command: list[str], **pipes) -> list[subprocess.Popen]:
    """One process for each rank, with torchrun's variables and one thread of computation."""
    meeting = place.meeting()
    ranks = [subprocess.Popen(
        place.command(rank) + command,
        env={**os.environ, "OMP_NUM_THREADS": "1", "RANK": str(rank),
             "WORLD_SIZE": str(place.count), **meeting, **place.variables(rank)}, **pipes)
        for rank in range(place.count)]
    for rank in ranks:
        atexit.register(rank.kill)  # those that still run when something went wrong
    return ranks


class Job:
    """Ranks that compute when told to, and sleep otherwise."""

    def __init__(self, name: str, place: Place, command: list[str]):
        self.name = name
        self.ranks = start(place, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def steps(self, way: str, count: int) -> list[dict]:
        """What each rank answers after so many steps."""
        for rank in self.ranks:
            rank.stdin.write(f"{way} {count}\n")
            rank.stdin.flush()
        answers: dict[int, dict] = {}
        with selectors.DefaultSelector() as waiting:
            for number, rank in enumerate(self.ranks):
                waiting.register(rank.stdout, selectors.EVENT_READ, number)
            while len(answers) < len(self.ranks):
                for key, _ in waiting.select():
                    line = key.fileobj.readline()
                    if not line:
                        raise SystemExit(f"bench/fsdp: rank {key.data} of {self.name} ended early; "
                                         "its message is above")
                    answers[key.data] = json.loads(line)
                    waiting.unregister(key.fileobj)
        return [answers[number] for number in range(len(self.ranks))]

    def sample(self, way: str, count: int) -> float:
        """Seconds of a step, the slowest rank's mean over `count` after one that warms up."""
        self.steps(way, 1)
        return max(sum(answer["seconds"]) for answer in self.steps(way, count)) / count

    def end(self) -> None:
        for rank in self.ranks:
            rank.stdin.close()
        for rank in self.ranks:
            try:
                rank.wait(10)
            except subprocess.TimeoutExpired:
                rank.kill()
                rank.wait()


def alternate(ways: dict[str, tuple[Job, str]], rounds: int, count: int) -> dict[str, list[float]]:
    """A round takes one sample of each way, in an order that turns."""
    names = list(ways)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            job, way = ways[name]
            samples[name].append(job.sample(way, count))
    return samples
