#!/usr/bin/env python3
"""Ranks that fork while their threads are busy: forks.py WORKER [FORKS [RANKS]].

Every child must find each verb refused or harmless, at once; the parents must end well, having said nothing:
nobody is lost.
"""
import sys
import tempfile

from run import collect, fail, start

LIMIT_S = 120


def main(worker, forks="40", ranks="2"):
    for hosts in (["a"], ["a", "b"]):
        with tempfile.TemporaryDirectory() as folder:
            # A leak checker sees leaks in a child whose other threads are gone.
            processes = start([worker, forks, folder], ranks=int(ranks), ASAN_OPTIONS="detect_leaks=0",
                              hosts=",".join(hosts[rank % len(hosts)] for rank in range(int(ranks))))
            results = collect(processes, LIMIT_S)
            case = f"{forks} forks of each of {ranks} ranks on hosts {hosts}"
            if any(status != 0 or errors for status, errors, _ in results.values()):
                fail(case, "not every rank ended well and silent", results)
            print(f"ok {case}: {max(seconds for _, _, seconds in results.values()):.1f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
