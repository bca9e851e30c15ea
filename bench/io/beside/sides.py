"""The loaders that are compared: each gives batches, and of each batch what it is and its memory.

A side is a function of (folder, settings) that gives, for ever or for an epoch, pairs: which samples a batch has, and
arrays of them, which together are the batch's bytes. Settings are what a first pass tunes.
"""

from __future__ import annotations

import itertools
import pathlib
import sys
import types
from collections.abc import Iterator

import numpy

from beside import data

BATCH = {"tokens": 64, "images": 32, "volumes": 1}
Batches = Iterator[tuple[list[int], list]]


def sprat(folder: pathlib.Path, work: str, settings: dict) -> Batches:
    from sprat.torch.data import DataLoader

    common = {"batch": BATCH[work], "epochs": 0, "seed": settings.get("seed", 1), "memory_bytes": settings.get("memory", 512) * data.MIB}
    common |= {key: settings[key] for key in ("reader", "shuffle", "io_threads", "decode_threads") if key in settings}
    if work == "tokens":
        loader = DataLoader(folder / "tokens.bin", format="tokens", token_type="u16", length=data.TOKENS - 1, **common)
        for batch in loader:
            yield loader.last, [batch.numpy()]
    loader = DataLoader(folder / f"{work}_tar", format="webdataset", **common)
    field = {"images": "jpg", "volumes": "vol"}[work]
    for batch in loader:
        yield loader.last, [record[field] for record in batch]


def torch_map(folder: pathlib.Path, work: str, settings: dict) -> Batches:
    """torch.utils.data.DataLoader over a map-style data set, RandomSampler."""
    import torch

    dataset = {"tokens": _TokenMap, "images": _FileMap, "volumes": _MdsMap}[work](folder)
    workers = settings["workers"]
    more = {"prefetch_factor": settings["prefetch"], "persistent_workers": True} if workers else {}
    loader = torch.utils.data.DataLoader(dataset, BATCH[work], shuffle=True, num_workers=workers, drop_last=True,
                                         generator=torch.Generator().manual_seed(settings.get("seed", 1)), **more)
    for _ in itertools.count():
        for numbers, values in loader:
            yield numbers.tolist(), [values.numpy()]


class _TokenMap:
    """Windows that begin at any token."""

    def __init__(self, folder: pathlib.Path):
        self.path = folder / "tokens.bin"
        self.tokens = None
        self.length = self.path.stat().st_size // 2 - data.TOKENS

    def __len__(self) -> int:
        return self.length // data.TOKENS  # as many as an epoch of windows has

    def __getitem__(self, index: int):
        import torch

        if self.tokens is None:
            self.tokens = numpy.memmap(self.path, numpy.int16, "r")
        first = index * 1_000_003 % self.length
        return first, torch.from_numpy(self.tokens[first : first + data.TOKENS].copy())


class _FileMap:
    def __init__(self, folder: pathlib.Path):
        self.folder, self.count = folder / "images_files", data.counts(folder)["images"]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int):
        import torch

        path = self.folder / f"{index // 1000:04}" / f"{index:09}.jpg"
        return index, torch.from_numpy(numpy.fromfile(path, numpy.uint8))


class _MdsMap:
    """Volumes where the tars have them: a file for each of four, read by offset."""

    def __init__(self, folder: pathlib.Path):
        self.folder, self.count = folder / "volumes_tar", data.counts(folder)["volumes"]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int):
        import torch

        path = self.folder / f"{index // data.VOLUMES_IN_SHARD:05}.tar"
        block = 512
        first = index % data.VOLUMES_IN_SHARD * (block + data.VOLUME) + block
        return index, torch.from_numpy(numpy.fromfile(path, numpy.uint8, data.VOLUME, offset=first))


def webdataset(folder: pathlib.Path, work: str, settings: dict) -> Batches:
    import torch
    import webdataset as wds

    shards = [str(path) for path in sorted((folder / f"{work}_tar").glob("*.tar"))]
    workers = settings["workers"]
    field = {"tokens": "bin", "images": "jpg", "volumes": "vol"}[work]
    pipeline = wds.WebDataset(shards, shardshuffle=len(shards), empty_check=False, seed=settings.get("seed", 1))
    if settings.get("buffer"):
        pipeline = pipeline.shuffle(settings["buffer"])
    pipeline = pipeline.map(_WebSample(field)).batched(BATCH[work], collation_fn=_web_batch, partial=False)
    more = {"prefetch_factor": settings["prefetch"]} if workers else {}
    for _ in itertools.count():
        yield from torch.utils.data.DataLoader(pipeline, batch_size=None, num_workers=workers, collate_fn=_same, **more)


class _WebSample:
    def __init__(self, field: str):
        self.field = field

    def __call__(self, sample: dict):
        return int(sample["__key__"]), numpy.frombuffer(sample[self.field], numpy.uint8)


def _web_batch(samples: list):
    import torch

    return [number for number, _ in samples], [torch.from_numpy(numpy.stack([values for _, values in samples]))]


def _same(batch):
    numbers, values = batch
    return numbers, values


def mosaic(folder: pathlib.Path, work: str, settings: dict) -> Batches:
    """mosaicml-streaming's local StreamingDataset in torch's loader."""
    import torch

    _without_transformers()
    from streaming.base.dataset import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()
    dataset = StreamingDataset(local=str(folder / f"{work}_mds"), shuffle=True, batch_size=BATCH[work],
                               shuffle_seed=settings.get("seed", 1), num_canonical_nodes=1,
                               shuffle_block_size=settings.get("block"))
    workers = settings["workers"]
    more = {"prefetch_factor": settings["prefetch"], "persistent_workers": True} if workers else {}
    loader = torch.utils.data.DataLoader(dataset, BATCH[work], num_workers=workers, collate_fn=_mds_batch, drop_last=True, **more)
    for _ in itertools.count():
        yield from loader


def _mds_batch(samples: list):
    import torch

    return [sample["i"] for sample in samples], [torch.from_numpy(numpy.stack([numpy.frombuffer(sample["x"], numpy.uint8) for sample in samples]))]


def _without_transformers() -> None:
    """streaming imports it for a loader that is not used here; it is large, and need not be installed."""
    try:
        import transformers  # noqa: F401
    except ImportError:
        stub = types.ModuleType("transformers")
        stub.BatchEncoding = stub.BatchFeature = dict
        sys.modules["transformers"] = stub


def numpy_gather(folder: pathlib.Path, work: str, settings: dict) -> Batches:
    """nanoGPT's get_batch: random windows of a memmap, stacked."""
    import torch

    tokens = numpy.memmap(folder / "tokens.bin", numpy.int16, "r")
    draw = numpy.random.default_rng(settings.get("seed", 1))
    while True:
        firsts = draw.integers(0, len(tokens) - data.TOKENS, BATCH[work])
        yield firsts, [torch.stack([torch.from_numpy(tokens[first : first + data.TOKENS]) for first in firsts]).numpy()]


#: By name, as the table has them: the function, the works it can do, and what its first pass tries.
_WORKERS = [{"workers": 0}, {"workers": 1, "prefetch": 4}, {"workers": 2, "prefetch": 2}, {"workers": 2, "prefetch": 8},
            {"workers": 2, "prefetch": 32}]
SIDES = {
    "sprat": (sprat, ("tokens", "images", "volumes"), [{}]),
    "sprat, chunks": (sprat, ("images",), [{"shuffle": "chunks"}]),
    "torch DataLoader": (torch_map, ("tokens", "images", "volumes"), _WORKERS),
    "webdataset": (webdataset, ("tokens", "images", "volumes"), [s | {"buffer": 1000} for s in _WORKERS]),
    "mosaicml-streaming": (mosaic, ("tokens", "images", "volumes"), _WORKERS),
    "numpy memmap": (numpy_gather, ("tokens",), [{}]),
}


def tries(name: str, work: str) -> list[dict]:
    """The settings that the first pass tries. Of volumes a side may hold as many as fit into the memory that ours has, four: what lies in
    a larger queue or buffer when the clock starts, at the first batch, would count as read in no time."""
    settings = SIDES[name][2]
    if work != "volumes":
        return settings
    few = [one for one in settings if one["workers"] * one.get("prefetch", 0) <= 4] if name != "sprat" else settings
    return [{key: value for key, value in one.items() if key != "buffer"} for one in few]


def identities(work: str, which) -> list[int]:
    """Of a batch's samples: first tokens, or numbers. Ours says which records they are."""
    if isinstance(which, (list, numpy.ndarray)):
        return list(which)
    return list(which.records)


def first_tokens(name: str, numbers: list[int]) -> list[int]:
    """Sides that read tokens as records of 4 KiB give the records' numbers."""
    return [number * data.TOKENS for number in numbers] if name in ("webdataset", "mosaicml-streaming") else numbers
