"""The libraries that compare.py compares: their ranks started, on this host or on several, and told what to do."""
import os
import shlex
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/system/chaos"))
from hosts import Hosts  # noqa: E402  (namespaces, as the chaos tests use them)

LIMIT = "limit"
BEFORE = "before"  # our library of another build
MOST_SECONDS = 120  # of a batch or a check
ONE_RAIL = "one_rail"  # our library on the first of the wires
OURS = ["sprat", BEFORE, ONE_RAIL]
PORT = 29_500  # between namespaces, where nobody else is
# What a batch of the limit over wires moves at least: what a burst lets through at once does not count.
LEAST_WIRE_BYTES = 16 << 20


class Stopped(Exception):
    """A library goes no further."""


class Library:
    """The ranks of one library, connected."""

    def __init__(self, name, least_batch_s):
        self.name, self.least_batch_s, self.streams, self.processes = name, least_batch_s, {}, []

    def ask(self, line):
        try:
            for stream in self.streams.values():
                stream.write(line + "\n")
                stream.flush()
            answers = [stream.readline().strip() for stream in self.streams.values()]
        except TimeoutError:
            for process in self.processes:
                process.kill()
            raise Stopped(f"{self.name} hangs: a rank has not answered [{line}] for {MOST_SECONDS} s")
        except OSError:  # it closed its end
            answers = [""]
        if "" in answers:
            raise Stopped(f"a rank of {self.name} has ended during [{line}]")
        return answers

    def prepare(self, collective, size, memory):
        """What is wrong; empty if nothing."""
        return next((answer for answer in self.ask(f"cell {collective} {size} {memory}") if answer != "ok"), "")

    def check(self):
        return next((answer for answer in self.ask("check") if answer != "ok"), "")

    def sample(self, calls):
        return max(float(answer) for answer in self.ask(f"batch {calls}"))

    def calls_a_batch(self):
        """So many that a batch takes least_batch_s; the first calls warm up."""
        calls = 1
        while True:
            seconds = min(self.sample(calls) for _ in range(2)) * calls
            if seconds >= self.least_batch_s or calls >= 1 << 20:
                return calls
            calls = max(calls + 1, min(calls * 10, int(calls * 1.3 * self.least_batch_s / max(seconds, 1e-9))))

    def quit(self):
        for stream in self.streams.values():
            try:
                stream.write("quit\n")
                stream.flush()
            except OSError:
                pass
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


class Wires(Library):
    """The hosts' plain TCP ring: the time in which the wires carry what a call of the cell must cross them."""

    def __init__(self, ranks, hosts):
        super().__init__(LIMIT, 0.0)
        self.ranks, self.hosts, self.bytes, self.moved = ranks, hosts, 0, 0

    def prepare(self, collective, size, memory):
        self.bytes = wire_bytes(collective, size, self.ranks, self.hosts)
        self.moved = max(self.bytes, LEAST_WIRE_BYTES)
        return super().prepare("wire", self.moved, memory)

    def sample(self, calls):
        return super().sample(calls) * self.bytes / self.moved


def wire_bytes(collective, size, ranks, hosts):
    """What must leave (or reach) one of `hosts` equal hosts; `size` as in driver.hpp."""
    others = (hosts - 1) / hosts
    return int(size * {"all_reduce": 2 * others, "all_gather": others, "reduce_scatter": others, "broadcast": 1,
                       "all_to_all": others * ranks / hosts, "all_to_allv": others * ranks / hosts,
                       "send_recv": ranks / hosts, "barrier": 0}[collective])


class Here:
    """All ranks on this host; if pinned, rank r of each library to core r mod cores."""

    least_batch_s = 2e-3

    def __init__(self, ranks, pinned):
        self.ranks, self.pinned = ranks, pinned

    def inside(self, _):
        return []

    def address(self, _):
        return "127.0.0.1"

    def port(self):
        return 20_000 + os.getpid() % 10_000

    def variables(self, _):
        return {}

    def openmpi(self, _):
        return [] if self.pinned else ["--mca", "mpi_yield_when_idle", "1"]

    def limits(self):
        return [LIMIT, LIMIT + "_nt"] if self.pinned and self.ranks <= len(os.sched_getaffinity(0)) else []

    def remove(self):
        pass


class Between:
    """Consecutive ranks on hosts that are network namespaces; nothing is pinned."""

    least_batch_s = 50e-3
    pinned = False

    def __init__(self, ranks, hosts, rails, rate):
        self.ranks, self.per_host, self.rate = ranks, ranks // hosts, rate
        self.hosts = Hosts(hosts, rails, rate)

    def host(self, rank):
        return rank // self.per_host

    def inside(self, rank):
        return ["ip", "netns", "exec", self.hosts.space(self.host(rank))]

    def address(self, rank):
        return self.hosts.address(self.host(rank))

    def port(self):
        return PORT

    def interfaces(self):
        return ",".join(self.hosts.interface(rail) for rail in range(self.hosts.rails))

    def variables(self, rank):
        return {"SPRAT_HOST": f"host{self.host(rank)}", "SPRAT_INTERFACE": self.interfaces()}

    def openmpi(self, folder):
        """A daemon in each namespace, under a host's name of its own, started by our agent."""
        agent = os.path.join(folder, "agent")
        cases = "".join(f"{self.hosts.address(host)}) space={self.hosts.space(host)};;\n"
                        for host in range(self.hosts.count))
        with open(agent, "w") as file:
            file.write(f"#!/bin/sh\ncase $1 in\n{cases}esac\nshift\n"
                       "exec ip netns exec $space unshare --uts sh -c 'hostname $0; eval \"$*\"' $space \"$@\"\n")
        os.chmod(agent, 0o700)
        places = ",".join(f"{self.hosts.address(host)}:{self.per_host}" for host in range(self.hosts.count))
        return shlex.split(f"--host {places} --mca plm_rsh_agent {agent} --mca plm_rsh_no_tree_spawn 1 --mca rtc ^hwloc "
                           f"--mca mpi_yield_when_idle 1 --mca pml ob1 --mca btl self,vader,tcp --mca btl_tcp_if_include {self.interfaces()} "
                           f"--mca oob_tcp_if_include {self.hosts.interface()}")

    def limits(self):
        return [LIMIT]

    def remove(self):
        self.hosts.remove()


def driver(name, options, folder):
    """The program of a library. Another build's is compiled with the headers of its own sources, where its CMakeCache.txt
    tells them: structs of the API may have grown since, and the older library would read past them."""
    cache = os.path.join(options.before or "", "CMakeCache.txt")
    if name != BEFORE or not os.path.exists(cache):
        return os.path.join(options.build, "compare_" + ("sprat" if name in OURS else name))
    with open(cache) as lines:
        sources = next(line.split("=", 1)[1].strip() for line in lines if line.startswith("CMAKE_HOME_DIRECTORY:"))
    include, program = os.path.join(sources, "include"), os.path.join(folder, "compare_before")
    if os.path.exists(program):
        return program  # of an earlier start
    if not os.path.isdir(include):
        raise SystemExit(f"compare: {cache} names {sources}, which has no include/: build that library again where it lies")
    here = os.path.dirname(os.path.abspath(__file__))
    subprocess.run(["g++", "-std=c++20", "-O3", "-march=native", "-I", include, "-I", os.path.join(here, "../.."),
                    os.path.join(here, "sprat.cpp"), os.path.join(here, "driver.cpp"), "-o", program,
                    "-L", options.before, "-lsprat", "-pthread"], check=True)
    return program


def start(name, place, options, folder, meeting):
    """The processes of one library, and how many will connect. Programs are kept in `folder` from start to start."""
    path = os.path.join(meeting, "socket")
    ranks, program = place.ranks, driver(name, options, folder)
    base = {key: value for key, value in os.environ.items()
            if key not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}

    def process(command, rank=0, **more):
        return subprocess.Popen(place.inside(rank) + command, env=dict(base, **more), stdin=subprocess.DEVNULL)

    if name == "openmpi":
        agreed = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
        return [process(["mpirun.openmpi", *agreed, *place.openmpi(meeting), program, path])], ranks
    if name == "mpich":
        return [process(["mpiexec.mpich", "-bind-to", "none", "-n", str(ranks), program, path])], ranks
    if name == "gloo":
        store = os.path.join(meeting, "store")
        os.mkdir(store)
        return [process([program, path, str(rank), str(ranks), store, place.address(rank)], rank)
                for rank in range(ranks)], ranks
    if name in OURS:
        port = place.port() + 2 * OURS.index(name)
        own = {BEFORE: {"LD_LIBRARY_PATH": options.before}, ONE_RAIL: {"SPRAT_INTERFACE": Hosts.interface()}}.get(name, {})
        return [process([program, path], rank, **{
            "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "MASTER_ADDR": place.address(0),
            "MASTER_PORT": str(port), **place.variables(rank), **own}) for rank in range(ranks)], ranks
    if isinstance(place, Here):
        program = os.path.join(options.build, "compare_limit")
        return [process([program, path, str(ranks)] + ["nt"] * name.endswith("nt"))], ranks
    hosts = place.hosts
    addresses = [",".join(hosts.address(host, rail) for rail in range(hosts.rails)) for host in range(hosts.count)]
    program = os.path.join(options.build, "compare_wire")
    return [process([program, path, str(host), str(hosts.count), str(PORT + 1), addresses[host],
                     addresses[(host + 1) % hosts.count]], host * place.per_host)
            for host in range(hosts.count)], hosts.count


def launch(names, place, options, folder, meeting):
    """Starts the libraries' ranks, which meet in one folder, and returns them by name once all have connected."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.join(meeting, "socket"))
    listener.listen(256)
    libraries = {}
    for name in names:
        wires = name == LIMIT and isinstance(place, Between)
        library = Wires(place.ranks, place.hosts.count) if wires else Library(name, place.least_batch_s)
        libraries[name] = library
        library.processes, ranks = start(name, place, options, folder, meeting)
        await_ranks(listener, library, ranks, place.pinned and not name.startswith(LIMIT))
    return libraries


def await_ranks(listener, library, ranks, pinned):
    listener.settimeout(60)
    while len(library.streams) < ranks:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            raise Stopped(f"{library.name} did not start: {len(library.streams)} of {ranks} ranks came")
        connection.settimeout(MOST_SECONDS)
        stream = connection.makefile("rw")
        _, rank, pid = stream.readline().split()
        library.streams[int(rank)] = stream
        if pinned:
            cores = sorted(os.sched_getaffinity(0))
            for thread in os.listdir(f"/proc/{pid}/task"):
                os.sched_setaffinity(int(thread), {cores[int(rank) % len(cores)]})
