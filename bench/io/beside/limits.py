"""What no loader can be faster than: fio on the same files, plain preads of cached pages, memcpy."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess

from beside import data
from beside.sides import BATCH

#: (block bytes, reads in flight) that fio's first pass tries.
STREAMS = [(bs, depth) for bs in (256 << 10, 1 << 20, 4 << 20) for depth in (1, 8, 32)]
RECORDS = [(data.RECORD, depth) for depth in (1, 8, 16, 32, 64, 128)]
LIMITS = pathlib.Path(__file__).resolve().parents[3] / "build/release/bin/sprat_bench_io_limits"


def record_bytes(work: str) -> int:
    return {"tokens": data.RECORD, "images": data.IMAGE, "volumes": data.VOLUME}[work]


def big_files(folder: pathlib.Path, work: str) -> list[pathlib.Path]:
    """What our loader reads."""
    return [folder / "tokens.bin"] if work == "tokens" else sorted((folder / f"{work}_tar").glob("*.tar"))


def fio(folder: pathlib.Path, work: str, setting: tuple[int, int], seconds: float) -> dict:
    """Random records for tokens, streams for the rest; past the page cache."""
    if not shutil.which("fio"):
        raise SystemExit("io: there is no fio: apt-get install fio")
    block, depth = setting
    names = ":".join(str(path) for path in big_files(folder, work)[:64])
    words = ["fio", "--name=limit", f"--filename={names}", f"--rw={'randread' if work == 'tokens' else 'read'}", f"--bs={block}",
             "--direct=1", "--ioengine=io_uring", f"--iodepth={depth}", "--readonly", f"--runtime={seconds}", "--time_based",
             "--randrepeat=0", "--output-format=json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"io: fio says {done.stderr.strip() or done.stdout.strip()}")
    read = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]["read"]
    return {"bytes": read["io_bytes"], "seconds": read["runtime"] / 1000}


def own(*words) -> dict:
    if not LIMITS.exists():
        raise SystemExit(f"io: there is no {LIMITS}: ninja -C build/release sprat_bench_io_limits")
    done = subprocess.run([str(word) for word in (LIMITS, *words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr.strip())
    return json.loads(done.stdout)


def preads(folder: pathlib.Path, work: str, seconds: float) -> dict:
    if work == "tokens":
        return own("gather", folder / "tokens.bin", data.RECORD, BATCH[work], seconds)
    block = data.IMAGE if work == "images" else 4 << 20
    return own("stream", seconds, block, *big_files(folder, work))


def memcpy(work: str, seconds: float) -> dict:
    return own("memcpy", min(record_bytes(work), 4 << 20), BATCH[work] if work != "volumes" else 1, seconds)


def llmc(folder: pathlib.Path, seconds: float) -> dict:
    return own("llmc", folder / "tokens.bin", BATCH["tokens"], data.RECORD, seconds)
