#!/usr/bin/env python3
"""Damages every file of a checkpoint, each region of it, and asks for it.

    damage.py WORKER [SPRAT] [--whole]

Held: loading ends with one line that names the file, whatever was flipped, cut off, added or missing; `sprat
checkpoint verify` says so too. --whole: 500 flips a file, and a checkpoint of cut tensors.
"""
import argparse
import pathlib
import random
import tempfile

from harness import entries, loaded_step, one_line, run


def refusals(worker, sprat, path, file, what):
    loaded = run(worker, "load", path, 2, 2, 1)
    assert loaded.returncode == 1, f"{what}: {loaded.stdout}"
    complaint = one_line(loaded.stderr)
    assert file.name in complaint or file.name in what, f"{what}: {complaint}"
    if sprat:
        verified = run(sprat, "checkpoint", "verify", path)
        assert verified.returncode == 1, f"{what}: {verified.stdout}"
        assert file.name in verified.stdout + verified.stderr, f"{what}: {verified.stdout}{verified.stderr}"
    return complaint


def flips(size, whole, draw):
    """(byte, bit)s: the length, the header, its end, the data, the last byte; and by chance."""
    chosen = [(0, 0), (7, 7), (8, 1), (9, 6), (size // 2, 5), (size - 1, 0)]
    return chosen + [(draw.randrange(size), draw.randrange(8)) for _ in range(500 if whole else 4)]


def damages(arguments, arrangement, draw):
    """How many damages of a checkpoint that this arrangement saved were refused."""
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        assert run(arguments.worker, "save", folder, *arrangement, 1, 1).returncode == 0
        path = f"{folder}/step-00000001"
        for name in entries(path):
            file = pathlib.Path(path, name)
            whole = file.read_bytes()

            def held(content, what):
                nonlocal count
                if content is None:
                    file.unlink()
                else:
                    file.write_bytes(content)
                complaint = refusals(arguments.worker, arguments.sprat, path, file, f"{name}, {what}")
                file.write_bytes(whole)
                count += 1
                return complaint

            for at, bit in flips(len(whole), arguments.whole, draw):
                damaged = bytearray(whole)
                damaged[at] ^= 1 << bit
                complaint = held(bytes(damaged), f"bit {bit} of byte {at}")
            print(complaint.replace(folder, "FOLDER"))
            for length in [0, 1, 8, len(whole) // 2, len(whole) - 1]:
                complaint = held(whole[:length], f"cut to {length}")
            print(complaint.replace(folder, "FOLDER"))
            held(whole + b"\0", "one byte more")
            print(held(None, "missing").replace(folder, "FOLDER"))
        assert loaded_step(arguments.worker, path) == 1
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("worker")
    parser.add_argument("sprat", nargs="?")
    parser.add_argument("--whole", action="store_true")
    arguments = parser.parse_args()
    draw = random.Random(1)
    # t2: of each third of a tensor's rows each of two ranks has a half, in a file each.
    arrangements = [(2, 2, 1)] + ([(4, 2, "1t2")] if arguments.whole else [])
    count = sum(damages(arguments, arrangement, draw) for arrangement in arrangements)
    print(f"{count} damages, each refused by the name of the file")


if __name__ == "__main__":
    main()
