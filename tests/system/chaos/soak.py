#!/usr/bin/env python3
"""Chaos between hosts: soak.py WORKER [--rounds N] [--minutes N] [--seed N]

Jobs of random collectives over two or three network namespaces; each is killed at, stopped, continued,
or has a host's wire cut, at a random moment, and is then restarted. Survivors must end with an error
that names a right rank within the bound, never with a wrong byte; nothing may be left behind.
"""
import argparse
import random
import signal
import sys
import time

from hosts import Hosts
from job import Job, Residue, verdict

KILL_LIMIT_S = 5.0
# A cut wire sends nothing, not even its end: it takes a heartbeat to notice.
CUT_LIMIT_S = 12.0
TIMEOUT_S = 3


def play(options, hosts, number):
    draw = random.Random(options.seed * 100_003 + number)
    ranks = draw.randint(2, 6)
    count = draw.randint(2, min(hosts.count, ranks))
    host_of = [rank * count // ranks for rank in range(ranks)]
    event = draw.choice(["kill", "kill", "pause", "stop", "cut", "blink"])
    victim = draw.randrange(ranks)
    what = f"round {number} (seed {options.seed}): {event} at rank {victim} of {ranks} on hosts {host_of}"
    job = Job(options.worker, ["soak", str(draw.randrange(1 << 30))], ranks,
              ",".join(f"h{host}" for host in host_of), hosts.address(0), 20_000 + number % 20_000,
              [hosts.space(host) for host in host_of], SPRAT_TIMEOUT=str(TIMEOUT_S))
    host = host_of[victim]
    try:
        if not job.wait_until_ready():
            return f"{what}: did not start: {job.collect(1)}"
        time.sleep(draw.random() * 0.5)
        if event == "kill":
            job.kill(victim)
            return judge(job, what, {victim}, {"lost peer"}, KILL_LIMIT_S)
        if event in ("pause", "blink"):
            # Shorter than the deadline: nobody may notice more than the time.
            job.signal(victim, signal.SIGSTOP) if event == "pause" else hosts.cut(host)
            time.sleep(draw.random())
            job.signal(victim, signal.SIGCONT) if event == "pause" else hosts.mend(host)
            time.sleep(1.5)
            ended = [rank for rank, process in job.processes.items() if process.poll() is not None]
            return f"{what}: ranks {ended} ended: {job.collect(1)}" if ended else ""
        if event == "stop":
            job.signal(victim, signal.SIGSTOP)
            time.sleep(TIMEOUT_S + 3)
            job.signal(victim, signal.SIGCONT)
            # A message knows only its peer, which may itself be waiting in a chain that ends at the victim.
            return judge(job, what, {victim, -1}, {"timeout", "lost peer"}, KILL_LIMIT_S,
                         but=("recv from", "send to"), stopped=victim)
        hosts.cut(host)
        beyond = {rank for rank in range(ranks) if host_of[rank] != host}
        within = {rank for rank in range(ranks) if host_of[rank] == host}
        return judge(job, what, beyond | within | {-1}, {"timeout", "lost peer", "unavailable"}, CUT_LIMIT_S)
    finally:
        hosts.mend(host)
        job.end()


def judge(job, what, named, codes, limit_s, but=(), stopped=-1):
    """What is wrong; empty if every rank ended in time, with one of `codes`, naming one of `named`. Errors with one
    of the words `but` may name any rank, and so may the one that was stopped: the others have given up."""
    results = job.collect(limit_s + 5)
    for rank, (status, errors, seconds) in sorted(results.items()):
        code, who, text = verdict(errors)
        if status is None or seconds > limit_s:
            return f"{what}: rank {rank} did not end within {limit_s} s: {errors[-300:]}"
        if status != 1 or code not in codes or (who not in named and rank != stopped
                                                          and not any(word in text for word in but)):
            return f"{what}: rank {rank} ended with {status}, {code}, rank {who}: {text[-300:]}"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("worker")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    residue = Residue()
    hosts = Hosts(3)
    end = time.monotonic() + options.minutes * 60
    failures = number = 0
    try:
        while number < options.rounds or time.monotonic() < end:
            failure = play(options, hosts, number)
            number += 1
            if failure:
                failures += 1
                print("FAILED", failure, flush=True)
    finally:
        hosts.remove()
    left = residue.left()
    print(f"{number} rounds, {failures} failed, left behind: {left or 'nothing'}")
    sys.exit(1 if failures or left else 0)


if __name__ == "__main__":
    main()
