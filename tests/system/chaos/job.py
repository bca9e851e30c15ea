"""A job of chaos_worker processes, and what it may leave behind: nothing."""
import os
import re
import select
import signal
import socket
import subprocess
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# In the environment of every rank and what it forks.
# Not SPRAT_...: sprat warns of settings of its own that nothing reads.
MARK = f"CHAOS_JOB={os.getpid()}"


class Job:
    """Ranks started by hand with torchrun's variables. `spaces`: the network namespace of each rank."""

    def __init__(self, worker, arguments, ranks, hosts="", address="127.0.0.1", port=None, spaces=None, **variables):
        self.lines = {}
        self.processes = {}
        self.begun = time.monotonic()
        port = port or free_port()
        for rank in range(ranks):
            environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank),
                               MASTER_ADDR=address, MASTER_PORT=str(port), SPRAT_HOST=hosts,
                               **dict([MARK.split("=")]), **variables)
            inside = ["ip", "netns", "exec", spaces[rank]] if spaces else []
            self.processes[rank] = subprocess.Popen(
                inside + [worker] + arguments, env=environment, text=True, start_new_session=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def add(self, rank, command, space=None, **variables):
        """Starts a rank that no launcher knows, and so tells nothing."""
        environment = {name: value for name, value in os.environ.items()
                       if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")}
        environment.update(dict([MARK.split("=")]), **variables)
        self.processes[rank] = subprocess.Popen(
            (["ip", "netns", "exec", space] if space else []) + command, env=environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def wait_until_ready(self, limit_s=60):
        """False if a rank ended or said nothing in time."""
        return all(self.read_line(rank, limit_s).startswith("ready") for rank in self.processes)

    def read_line(self, rank, limit_s):
        stream = self.processes[rank].stdout
        return stream.readline().strip() if select.select([stream], [], [], limit_s)[0] else ""

    def signal(self, rank, number):
        self.processes[rank].send_signal(number)

    def kill(self, rank):
        """The rank alone: what it forked lives on."""
        self.signal(rank, signal.SIGKILL)
        self.processes.pop(rank).wait()

    def collect(self, limit_s):
        """{rank: (status, errors, seconds)}; status None: did not end."""
        begin = time.monotonic()
        results = {}
        for rank, process in self.processes.items():
            try:
                status = process.wait(max(0.05, limit_s - (time.monotonic() - begin)))
            except subprocess.TimeoutExpired:
                status = None
                process.kill()
            # A forked child keeps no copy of the pipe's writing end: the worker closes it there.
            _, errors = process.communicate()
            results[rank] = (status, errors.strip(), time.monotonic() - begin)
        return results

    def end(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def sweep(self, sessions):
        """Ends what ranks forked."""
        for session in sessions:
            try:
                os.killpg(session, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def sessions(self):
        return [process.pid for process in self.processes.values()]


def verdict(errors):
    """(code, rank, text) of a worker's last complaint."""
    found = re.findall(r"^worker: (.+?): rank (-?\d+): (.*)$", errors, re.M)
    return (found[-1][0], int(found[-1][1]), found[-1][2]) if found else ("", -1, errors)


class Residue:
    """What is in /dev/shm, which unix sockets have our names, which of this program's ranks run."""

    def __init__(self):
        self.before = self.look()

    def look(self):
        running = set()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ") as environment:
                    if MARK in environment.read().split("\0"):
                        running.add("process " + pid)
            except OSError:
                pass
        with open("/proc/net/unix") as table:
            listening = {"socket " + words[7] for words in map(str.split, table)
                         if len(words) > 7 and "sprat" in words[7]}
        return running | listening | {"/dev/shm/" + name for name in os.listdir("/dev/shm") if "sprat" in name}

    def left(self):
        """After a moment: who has just been killed may still be dying."""
        for _ in range(20):
            left = sorted(self.look() - self.before)
            if not left:
                break
            time.sleep(0.1)
        return left
