"""The data sets of the comparison: made once, the same for everybody, and what each piece of them adds up to.

Contents are pieces of one table of noise, so that the sum of any piece is known without reading it anew.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import pathlib
import tarfile

import numpy

KIB, MIB = 1 << 10, 1 << 20
RECORD = 4 * KIB  # a sample of tokens
TOKENS = RECORD // 2
IMAGE = 110 * KIB
IMAGES_IN_SHARD = 1000
VOLUME = 146 * 1000 * 1000 // 4096 * 4096
VOLUMES_IN_SHARD = 4
# Of 16-bit tokens; prime, so that no power of two divides a step through it.
PERIOD = 1_000_003


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Bytes of each data set."""

    tokens: int
    images: int
    volumes: int

    @classmethod
    def of(cls, gigabytes: float) -> Sizes:
        each = int(gigabytes * 1e9)
        return cls(each // RECORD * RECORD, each // IMAGE * IMAGE, max(4, each // VOLUME) * VOLUME)


def noise() -> numpy.ndarray:
    return numpy.random.default_rng(1).integers(0, 50_000, PERIOD, dtype=numpy.uint16)


class WindowSums:
    """The sum of the 64-bit words of any window of RECORD bytes of the token file, by its first token."""

    def __init__(self):
        once = noise()
        repeated = numpy.concatenate([once] * 5)  # words of every first token within 4 periods
        words = sum(repeated[i : i + 4 * PERIOD + 4].astype(numpy.uint64) << numpy.uint64(16 * i) for i in range(4))
        # before[k, j]: the sum of words that begin at tokens k, k + 4, ... below k + 4 j.
        of_residue = numpy.ascontiguousarray(words[: 4 * PERIOD].reshape(PERIOD, 4).T)
        self._before = numpy.concatenate([numpy.zeros((4, 1), numpy.uint64), numpy.cumsum(of_residue, 1, dtype=numpy.uint64)], 1)

    def __call__(self, first_tokens) -> int:
        first = numpy.asarray(first_tokens, numpy.int64) % (4 * PERIOD)
        residue, begin = first % 4, first // 4
        end = begin + TOKENS // 4
        wrapped = end > PERIOD
        with numpy.errstate(over="ignore"):
            sums = (self._before[residue, numpy.where(wrapped, end - PERIOD, end)] - self._before[residue, begin]
                    + numpy.where(wrapped, self._before[residue, PERIOD], numpy.uint64(0)))
            return int(sums.sum(dtype=numpy.uint64))


def sum_of(values) -> int:
    """Of memory, a multiple of 8 bytes long, as 64-bit words."""
    return int(numpy.frombuffer(values, numpy.uint64).sum(dtype=numpy.uint64))


class Pieces:
    """Images and volumes: the piece with number i begins at another byte of the noise."""

    def __init__(self, size: int):
        self.size = size
        self._noise = numpy.tile(noise(), 2 + size // (2 * PERIOD)).view(numpy.uint8)

    def __call__(self, number: int) -> memoryview:
        begin = 8 * (number * 7919 % (PERIOD // 4))
        return memoryview(self._noise[begin : begin + self.size])

    def sums(self, count: int) -> list[int]:
        return [sum_of(self(number)) for number in range(count)]


def prepare(folder: pathlib.Path, sizes: Sizes) -> None:
    """Writes what is missing. A file named done says what there is."""
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / "done.json"
    there = json.loads(done.read_text()) if done.exists() else {}
    if there.get("sizes") not in (None, dataclasses.asdict(sizes)):
        raise SystemExit(f"io: {folder} has data of other sizes: {there['sizes']}; name another folder or remove it")
    for name, make in (("tokens", _tokens), ("images", _images), ("volumes", _volumes)):
        if name not in there.get("made", []):
            print(f"writing {name} ...", flush=True)
            make(folder, getattr(sizes, name))
            there = {"sizes": dataclasses.asdict(sizes), "made": there.get("made", []) + [name]}
            os.sync()
            done.write_text(json.dumps(there))


def counts(folder: pathlib.Path) -> dict[str, int]:
    sizes = json.loads((folder / "done.json").read_text())["sizes"]
    return {"tokens": sizes["tokens"] // RECORD, "images": sizes["images"] // IMAGE, "volumes": sizes["volumes"] // VOLUME}


def _tokens(folder: pathlib.Path, size: int) -> None:
    once = noise()
    with open(folder / "tokens.bin", "wb") as file:
        for begin in range(0, size // 2, PERIOD):
            file.write(once[: size // 2 - begin].tobytes())
    # Peers that have no random windows read the same bytes as records of 4 KiB.
    tokens = numpy.memmap(folder / "tokens.bin", numpy.uint8, "r")
    _tars(folder / "tokens_tar", 20_000, size // RECORD, "bin", lambda i: tokens[i * RECORD : (i + 1) * RECORD])
    _mds(folder / "tokens_mds", size // RECORD, lambda i: tokens[i * RECORD : (i + 1) * RECORD], 64 * MIB)


def _images(folder: pathlib.Path, size: int) -> None:
    piece = Pieces(IMAGE)
    _tars(folder / "images_tar", IMAGES_IN_SHARD, size // IMAGE, "jpg", piece)
    _mds(folder / "images_mds", size // IMAGE, piece, 64 * MIB)
    _files(folder / "images_files", size // IMAGE, "jpg", piece)


def _volumes(folder: pathlib.Path, size: int) -> None:
    piece = Pieces(VOLUME)
    _tars(folder / "volumes_tar", VOLUMES_IN_SHARD, size // VOLUME, "vol", piece)
    _mds(folder / "volumes_mds", size // VOLUME, piece, 640 * MIB)


def _tars(folder: pathlib.Path, in_shard: int, count: int, ending: str, content) -> None:
    folder.mkdir(exist_ok=True)
    for shard, first in enumerate(range(0, count, in_shard)):
        with tarfile.open(folder / f"{shard:05}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for number in range(first, min(first + in_shard, count)):
                data = content(number)
                member = tarfile.TarInfo(f"{number:09}.{ending}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def _files(folder: pathlib.Path, count: int, ending: str, content) -> None:
    for number in range(count):
        if number % 1000 == 0:
            (folder / f"{number // 1000:04}").mkdir(parents=True, exist_ok=True)
        (folder / f"{number // 1000:04}" / f"{number:09}.{ending}").write_bytes(content(number))


def _mds(folder: pathlib.Path, count: int, content, shard_bytes: int) -> None:
    """Shards as mosaicml-streaming reads them: offsets of samples, then each: its columns' sizes and bytes."""
    folder.mkdir(exist_ok=True)
    shards, number = [], 0
    columns = {"column_encodings": ["int", "bytes"], "column_names": ["i", "x"], "column_sizes": [8, None]}
    head = json.dumps({**columns, "compression": None, "format": "mds", "hashes": [], "size_limit": shard_bytes,
                       "version": 2}, sort_keys=True).encode()
    while number < count:
        samples = []
        size = 0
        while number < count and (not samples or size < shard_bytes):
            data = bytes(content(number))
            samples.append(numpy.uint32(len(data)).tobytes() + numpy.int64(number).tobytes() + data)
            size += len(samples[-1])
            number += 1
        first = 4 + 4 * (len(samples) + 1) + len(head)
        offsets = first + numpy.concatenate([[0], numpy.cumsum([len(sample) for sample in samples])])
        name = f"shard.{len(shards):05}.mds"
        with open(folder / name, "wb") as file:
            file.write(numpy.uint32(len(samples)).tobytes() + offsets.astype(numpy.uint32).tobytes() + head)
            file.writelines(samples)
        shards.append({**columns, "compression": None, "format": "mds", "hashes": [], "samples": len(samples),
                       "size_limit": shard_bytes, "version": 2, "zip_data": None,
                       "raw_data": {"basename": name, "bytes": int(offsets[-1]), "hashes": {}}})
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))


def files(folder: pathlib.Path, work: str) -> list[pathlib.Path]:
    """All of a data set's, for dropping them from the page cache."""
    return sorted(path for top in folder.glob(f"{work}*") for path in ([top] if top.is_file() else top.rglob("*"))
                  if path.is_file())


def drop(paths: list[pathlib.Path]) -> None:
    """Out of the page cache."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def warm(paths: list[pathlib.Path]) -> None:
    """Into the page cache."""
    buffer = bytearray(8 * MIB)
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
