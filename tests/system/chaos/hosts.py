"""Hosts that are network namespaces of this machine; each has, for every rail, a wire to that rail's bridge."""
import os
import subprocess
import sys

# What a test returns that cannot run here.
SKIPPED = 77

# Takes the network down when its standard input ends, however this process ends.
UNDERTAKER = """
trap '' INT TERM HUP
cat >/dev/null
for space in {spaces}; do
  ip netns pids $space 2>/dev/null | xargs -r kill -9
  ip netns del $space
done
for device in {devices}; do ip link del $device; done
"""


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


class Hosts:
    """`rate`: of each wire in each direction, as tc writes it ("1gbit"); None: as fast as the machine."""

    def __init__(self, count, rails=1, rate=None):
        self.tag = f"sc{os.getpid() % 100_000}"
        self.count, self.rails = count, rails
        self.network = f"10.{78 + os.getpid() % 100}.{os.getpid() // 100 % 240}"
        if os.geteuid() != 0 or ip("link", "add", self.bridge(0), "type", "bridge", check=False).returncode:
            print("needs root, iproute2 and the right to make network devices", file=sys.stderr)
            sys.exit(SKIPPED)
        ip("link", "del", self.bridge(0))
        wires = [self.wire(host, rail) for rail in range(rails) for host in range(count)]
        self.undertaker = subprocess.Popen(
            ["sh", "-c", UNDERTAKER.format(spaces=" ".join(map(self.space, range(count))),
                                           devices=" ".join(wires + list(map(self.bridge, range(rails)))))],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        for host in range(count):
            ip("netns", "add", self.space(host))
            ip("-n", self.space(host), "link", "set", "lo", "up")
            # Linux's default, whatever this machine's: BBR lets short tails stall behind a token bucket. Where
            # namespaces may not choose it, they may choose what came before it.
            subprocess.run(["ip", "netns", "exec", self.space(host), "sh", "-c",
                            "cd /proc/sys/net/ipv4; { echo cubic >tcp_congestion_control; } 2>/dev/null || "
                            "echo reno >tcp_congestion_control"], check=False)
        for rail in range(rails):
            ip("link", "add", self.bridge(rail), "type", "bridge")
            ip("link", "set", self.bridge(rail), "up")
            for host in range(count):
                self.lay(host, rail, rate)

    def lay(self, host, rail, rate):
        space, outside, inside = self.space(host), self.wire(host, rail), self.interface(rail)
        ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", space)
        ip("link", "set", outside, "master", self.bridge(rail), "up")
        ip("-n", space, "addr", "add", self.address(host, rail) + "/24", "dev", inside)
        ip("-n", space, "link", "set", inside, "up")
        if rate:
            limit = ["root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"]
            subprocess.run(["tc", "qdisc", "add", "dev", outside, *limit], check=True)
            subprocess.run(["ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", inside, *limit], check=True)

    def space(self, host):
        return f"{self.tag}-{host}"

    def bridge(self, rail):
        return f"{self.tag}b{rail}"

    def wire(self, host, rail=0):
        return f"{self.tag}v{host}{'abcdefgh'[rail]}"

    @staticmethod
    def interface(rail=0):
        return f"wire{rail or ''}"

    def address(self, host, rail=0):
        network = self.network.rsplit(".", 1)
        return f"{network[0]}.{int(network[1]) + rail}.{host + 1}"

    def cut(self, host):
        ip("link", "set", self.wire(host), "down")

    def mend(self, host):
        ip("link", "set", self.wire(host), "up")

    def remove(self):
        self.undertaker.stdin.close()
        self.undertaker.wait()
