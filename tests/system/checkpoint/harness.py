"""What the scripts of this folder share: running the worker, and folders that go."""
import os
import pathlib
import subprocess
import sys

TIMEOUT = 100


def run(*words, **options):
    """The finished process, with its output and complaint as text."""
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=TIMEOUT, **options)


def loaded_step(worker, path, ranks=2, shards=2, stages=1):
    """The step that loads from `path`, after every value was checked; None if nothing loads."""
    loaded = run(worker, "load", path, ranks, shards, stages)
    if loaded.returncode == 0:
        words = loaded.stdout.split()
        assert words[0] == "step" and words[2:] == ["0", "wrong", "values"], loaded.stdout
        return int(words[1].rstrip(","))
    assert loaded.returncode == 1, f"status {loaded.returncode}: {loaded.stdout}{loaded.stderr}"
    return None


def one_line(complaint):
    """A complaint, which is one line."""
    lines = complaint.strip().splitlines()
    assert len(lines) == 1, complaint
    return lines[0]


def entries(folder):
    return sorted(os.listdir(folder)) if pathlib.Path(folder).exists() else []


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)
