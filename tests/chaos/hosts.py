"""Hosts that are network namespaces of this machine, each with a wire to a common bridge."""
import os
import subprocess
import sys

# What a test returns that cannot run here.
SKIPPED = 77


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


class Hosts:
    def __init__(self, count):
        self.tag = f"sc{os.getpid() % 100_000}"
        self.count = count
        self.network = f"10.{78 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
        if os.geteuid() != 0 or ip("link", "add", self.tag + "b", "type", "bridge", check=False).returncode:
            print("needs root, iproute2 and the right to make network devices", file=sys.stderr)
            sys.exit(SKIPPED)
        ip("link", "set", self.tag + "b", "up")
        for host in range(count):
            space = self.space(host)
            ip("netns", "add", space)
            ip("link", "add", self.wire(host), "type", "veth", "peer", "name", "wire", "netns", space)
            ip("link", "set", self.wire(host), "master", self.tag + "b", "up")
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "addr", "add", self.address(host) + "/24", "dev", "wire")
            ip("-n", space, "link", "set", "wire", "up")

    def space(self, host):
        return f"{self.tag}-{host}"

    def wire(self, host):
        return f"{self.tag}v{host}"

    def address(self, host):
        return f"{self.network}.{host + 1}"

    def cut(self, host):
        ip("link", "set", self.wire(host), "down")

    def mend(self, host):
        ip("link", "set", self.wire(host), "up")

    def remove(self):
        for host in range(self.count):
            ip("netns", "del", self.space(host), check=False)
        ip("link", "del", self.tag + "b", check=False)
