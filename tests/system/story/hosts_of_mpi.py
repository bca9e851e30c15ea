"""Jobs of Open MPI whose hosts are network namespaces: a launch agent stands where ssh would."""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "chaos"))
from hosts import Hosts


class MpiHosts:
    """`ranks_per_host` ranks on each of `count` hosts; a daemon of Open MPI's runs in each, under the host's own name."""

    def __init__(self, count, ranks_per_host, folder, rate=None):
        self.hosts, self.ranks_per_host = Hosts(count, rate=rate), ranks_per_host
        self.ranks = count * ranks_per_host
        self.agent = folder / "agent"
        cases = "".join(f"{self.hosts.address(host)}) space={self.hosts.space(host)};;\n" for host in range(count))
        self.agent.write_text(f"#!/bin/sh\ncase $1 in\n{cases}*) exit 1;;\nesac\nshift\n"
                              "exec ip netns exec $space unshare --uts sh -c 'hostname $0; eval \"$*\"' $space \"$@\"\n")
        self.agent.chmod(0o700)

    def inside(self, host, *command):
        """The command as one that runs on a host."""
        space = self.hosts.space(host)
        return ["ip", "netns", "exec", space, "unshare", "--uts", "sh", "-c", 'hostname $0; exec "$@"', space, *map(str, command)]

    def launch(self, sprat, *command, folder, log, lustre):
        """The running `sprat launch`, whose words of all ranks go to `log`; `lustre` is taken for a mount of it."""
        places = ",".join(f"{self.hosts.address(host)}:{self.ranks_per_host}" for host in range(self.hosts.count))
        options = f"--mca plm_rsh_agent {self.agent} --bind-to none --mca rtc ^hwloc --mca btl self,vader,tcp"
        # mpirun is on the first host, so that it has a wire to all others.
        line = self.inside(0, sprat, "launch", "--hosts", places, "--custom-mpi-options", options, "--", sprat, *command)
        environment = dict(os.environ, SPRAT_INTERFACE=self.hosts.interface(), SPRAT_PROVIDER="sockets", SPRAT_FAKE_LUSTRE=str(lustre))
        return subprocess.Popen(line, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def remove(self):
        self.hosts.remove()


def rank_process(rank, word):
    """The id of the process that is this rank of a job with `word` in its command line; None if there is none."""
    for cmdline in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = cmdline.read_text(errors="replace").split("\0")
            variables = (cmdline.parent / "environ").read_text(errors="replace").split("\0")
        except OSError:
            continue  # it has ended meanwhile
        if word in words and f"OMPI_COMM_WORLD_RANK={rank}" in variables:
            return int(cmdline.parent.name)
    return None
