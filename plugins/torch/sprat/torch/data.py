"""Batches from files on storage, read ahead by threads of the library: no worker processes.

    loader = sprat.torch.data.DataLoader("tokens/*.bin", batch=512, length=1024, token_type="u16")
    for tokens in loader:                                  # [batch / ranks, length + 1], not copied
        ...
    torch.save(loader.state_dict(), "loader.pt")           # any number of ranks goes on from it

docs/data.md tells which format when, and all options.
"""

from __future__ import annotations

import atexit
import collections
import difflib
import hashlib
import json
import os
import socket
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Union

import torch
import torch.distributed as dist
from torch.utils.data import IterableDataset, get_worker_info

from sprat.torch import _native

Path = Union[str, "os.PathLike[str]"]
#: A mapping is one source of several: {"paths": [...], "format": ..., "weight": ...}.
Paths = Union[Path, Mapping[str, Any], Sequence[Union[Path, Mapping[str, Any]]]]
Decode = Union[
    Callable[["Record"], Union[dict, None]],
    Mapping[str, Callable[[Any], Any]],
    Sequence[Callable[["Record"], Union[dict, None]]],
]

# Where the JSON of the options has what is a keyword here.
_SECTIONS = {
    "source": ("format", "token_type", "separator"),
    "order": ("seed", "samples", "chunk", "mixed_chunks", "remainder"),
    "reading": ("memory_bytes", "reader", "io_threads", "decode_threads", "corrupt", "fsx"),
    "cache": ("cache_folder", "cache_bytes"),
    "": ("ranks_on_host",),
}
_STATE_VERSION = 1

# Threads that decode want Python's lock, which they must not wait for once the interpreter is gone.
_open_loaders: weakref.WeakSet[DataLoader] = weakref.WeakSet()
# How many loaders of the same options this rank has made: the first is compared with the others' first.
_made: collections.Counter[str] = collections.Counter()


class Record(dict):
    """The fields of one record, as a decode function gets them.

    Fields of type "bytes" are memoryviews that end with the call, "text" is a str, "json" what it
    says, elements are tensors. ``sample`` is the sample's number in the run, equal for any number
    of ranks: seed random augmentation with it.
    """

    sample: int

    def __init__(self, fields: Mapping[str, Any], sample: int):
        super().__init__(fields)
        self.sample = sample


class DataPeers:
    """Hosts of the job that give each other blocks of files: ``DataLoader(..., peers=DataPeers())``.

    All ranks of ``group`` (default: of the job) make one together, for one loader each. Blocks go over
    TCP connections of their own, whose ends prove to each other that they belong to the job.

    ``host`` is this host's name, the same in the next run. ``address`` is the one, as numbers, at which
    the other hosts reach this one; without it, the one from which MASTER_ADDR is reached.
    """

    def __init__(self, group: Any = None, *, host: str | None = None, address: str | None = None):
        if not (dist.is_available() and dist.is_initialized()):
            raise ValueError("hosts find each other by torch.distributed: call init_process_group() first")

        def gather(text: str) -> list[str]:
            texts: list[Any] = [None] * dist.get_world_size(group)
            dist.all_gather_object(texts, text, group=group)
            return texts

        self._native = _native.DataPeers(host or socket.gethostname(), address or _own_address(), gather)


def _own_address() -> str:
    """At which the host of MASTER_ADDR sees this one; nothing is sent for it."""
    master = os.environ.get("MASTER_ADDR", "127.0.0.1")
    try:
        family, _, _, _, address = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ValueError(f"which address of this host others reach is not known, since MASTER_ADDR={master} "
                         f"is not reached ({error}): give address") from error


class DataLoader:
    """Iterates over batches of samples, in an order that every restart continues exactly.

    ``paths``: a file, a folder, a pattern with * and ?, or several; mappings with a ``weight`` mix
    sources. ``batch`` counts the samples of a step *of all ranks together*.

    Gives, for windows of tokens (``length`` tokens and their last target) and packed documents, one
    tensor [samples, length + 1]; with ``targets`` the pair (inputs, targets), two views of it; with
    ``dtype`` converted, else as files have it. Gives, for records, a list of dictionaries: "bytes"
    are read-only memoryviews, "text" is a str, "json" what it says, elements are tensors; or what
    ``collate`` makes of that list. Tensors and memoryviews are the loader's memory, which it takes
    back when the last of a batch is gone: who keeps many stops it from reading ahead.

    ``rank`` and ``ranks`` are torch.distributed's, or those of ``group``: a process group or a device
    mesh of the ranks that read different samples. Ranks that compute on the same samples, as tensor
    parallel ones, have the same rank in it.

    ``epochs`` None: each ``iter()`` is one pass of ``len()`` batches. 0: one ``iter()`` goes on for
    ever. n: one ``iter()`` gives n epochs. An ``iter()`` after one that was left early goes on with
    samples that were not seen; without a shuffle it begins again.

    ``decode``: a function of a :class:`Record` that returns a dict of fields, or changes the one that
    it was given; several in turn; or a mapping from fields to functions of their value. They run on
    the loader's threads, one at a time, for Python has one lock: what holds it long, as Python code
    does and libraries of images and arrays do not, slows the training loop. What they raise makes the
    record a corrupt one.

    Further options: format, token_type, separator; seed, samples, shuffle, chunk, mixed_chunks, remainder;
    memory_bytes, reader, io_threads, decode_threads, corrupt, timeout (seconds), fsx; cache_folder,
    cache_bytes, peers (a :class:`DataPeers`); ranks_on_host.

    One thread at a time, but for ``report()``. After ``fork()`` a child makes loaders of its own.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        batch: int,
        length: int | None = None,
        rank: int | None = None,
        ranks: int | None = None,
        group: Any = None,
        epochs: int | None = None,
        shuffle: str | bool = "full",
        targets: bool = False,
        dtype: torch.dtype | None = None,
        decode: Decode | None = None,
        collate: Callable[[list], Any] | None = None,
        timeout: float | None = None,
        peers: DataPeers | None = None,
        **options: Any,
    ):
        place_is_given = rank is not None
        rank, ranks = _place(rank, ranks, group)
        shares_with = None if place_is_given else _ranks_of(group)
        if isinstance(shuffle, bool):
            shuffle = "full" if shuffle else "none"
        if epochs is None:  # passes that begin with the epoch's first batch
            options.setdefault("remainder", "pad")
        written = _as_json(paths, options)
        names = _take_names(written["sources"])
        written["batch"] = batch
        written["order"] |= {"epochs": epochs or 0, "shuffle": shuffle}
        if length is not None:
            written["order"]["length"] = length
        if timeout is not None:
            written["reading"]["timeout_ms"] = round(timeout * 1000)
        self._batch, self._length, self._epochs, self._shuffle = batch, length, epochs, shuffle
        self._has_tokens = length is not None and options.get("samples") != "records"
        self._remainder = written["order"].get("remainder", "carry")
        self._targets, self._dtype, self._collate = targets, dtype, collate
        placed = written | {"rank": rank, "ranks": ranks}
        self._native = _native.DataLoader(
            json.dumps(placed), names, _stages(decode), None if peers is None else peers._native)
        if shares_with is not None:
            self._compare(shares_with, written)
        self._start = self._native.state()
        self._given = 0  # batches of this pass
        self._passes = 0  # that have ended
        self._is_resumed = False
        self._user = 0  # counts iterators; the last one may go on
        self._last: _native.DataBatch | None = None
        _open_loaders.add(self)

    def _compare(self, ranks: list[int], options: dict[str, Any]) -> None:
        """Ranks that share samples and are given the same paths must see the same files there.

        Nobody waits: who comes first writes down what it sees, the others compare.
        """
        what = hashlib.sha256(json.dumps([ranks, options], sort_keys=True).encode()).hexdigest()[:32]
        _made[what] += 1
        mine = {"samples": self._native.samples_per_epoch(), "fingerprint": f"{self.fingerprint():016x}"}
        written = json.dumps({"rank": dist.get_rank(), **mine})
        try:
            store = dist.distributed_c10d._get_default_store()
            first = store.compare_set(f"sprat.data/{what}/{_made[what]}", "", written)
            others = json.loads(first or written)
        except (NotImplementedError, RuntimeError) as error:
            warnings.warn(f"the store of torch.distributed does not tell whether ranks see the same data: {error}",
                          stacklevel=3)
            return
        if any(others[key] != value for key, value in mine.items()):
            paths = ", ".join(path for source in options["sources"] for path in source["paths"])
            raise ValueError(
                f"rank {dist.get_rank()} sees other data at {paths} than rank {others['rank']}: {mine['samples']} samples "
                f"with fingerprint {mine['fingerprint']}, there {others['samples']} with {others['fingerprint']}; give all "
                "ranks of a group the same files, by name and size")

    def __iter__(self) -> Iterator[Any]:
        if get_worker_info() is not None:
            raise RuntimeError(
                "a worker process of torch.utils.data.DataLoader iterates over sprat.torch.data: give "
                "num_workers=0. Threads of this library read and decode ahead; workers would each "
                "read every sample"
            )
        begins_again = self._epochs is None and self._shuffle == "none"
        if self._given and not self._is_resumed:
            if begins_again:
                self._native.resume(self._start)
            if self._epochs is None:
                self._given = 0
        if self._passes and self._epochs and not self._is_resumed:
            self._native.resume(self._start)
            self._passes = 0
        self._is_resumed = False
        self._user += 1
        return self._batches(self._user)

    def _batches(self, user: int) -> Iterator[Any]:
        most = self._batches_of_epochs(1) if self._epochs is None else None
        while most is None or self._given < most:
            if user != self._user:
                raise RuntimeError("another iter() of this loader has begun; go on with that one")
            # Batches of records keep the memory that the next one may need.
            self._last = None
            self._last = self._native.next()
            if self._last is None:
                break
            self._given += 1
            yield self._values(self._last)
        self._given = 0
        self._passes += 1

    def _values(self, batch: _native.DataBatch) -> Any:
        if not self._has_tokens:
            samples = [Record(fields, batch.first + i) for i, fields in enumerate(batch._values())]
            return samples if self._collate is None else self._collate(samples)
        tokens = batch._elements(self._length + 1)
        if self._dtype is not None:
            tokens = tokens.to(self._dtype)
        value = (tokens[:, :-1], tokens[:, 1:]) if self._targets else tokens
        return value if self._collate is None else self._collate(value)

    def __len__(self) -> int:
        """Batches of one ``iter()``. TypeError if it has no end."""
        if self._epochs == 0:
            raise TypeError("epochs is 0: this loader goes on for ever and has no length")
        return self._batches_of_epochs(1 if self._epochs is None else self._epochs)

    def _batches_of_epochs(self, epochs: int) -> int:
        samples = self._native.samples_per_epoch()
        if self._remainder == "carry":  # batches go over the ends of epochs
            return epochs * samples // self._batch
        whole = samples // self._batch
        return epochs * (whole + (self._remainder == "pad" and samples % self._batch > 0))

    @property
    def last(self) -> _native.DataBatch | None:
        """What is known of the batch that was given last; None before the first, and behind the last.

        ``index`` (since the loader began, or resumed), ``first`` (the run's sample that is this rank's first of
        it), ``size``, and lists by sample: ``epochs``, ``sources``, ``records`` (in its source), and
        of packed samples ``lengths``, tokens of each document. It keeps that batch's memory.
        """
        return self._last

    def state_dict(self) -> dict[str, Any]:
        """What was given so far, the batch that the loop is at too: less than 2 KB, equal on ranks."""
        return {
            "version": _STATE_VERSION,
            "loader": self._native.state(),
            "given": self._given,
            "passes": self._passes,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next ``iter()`` goes on behind that state, on any number of ranks.

        Raises ValueError that names what differs: another dataset, another order.
        """
        missing = {"version", "loader", "given", "passes"} - set(state)
        if missing:
            raise ValueError(f"no state of sprat.torch.data.DataLoader: {sorted(missing)} is missing")
        if state["version"] != _STATE_VERSION:
            raise ValueError(
                f"the state has version {state['version']}, this library reads {_STATE_VERSION}"
            )
        self._native.resume(state["loader"])
        self._given, self._passes = int(state["given"]), int(state["passes"])
        self._is_resumed = True
        self._user += 1  # iterators from before do not go on

    def report(self) -> dict[str, Any]:
        """Rates, waits and latencies since the last report, and a sentence on what limits them.

        ``text`` in it is all of that for people. Once a second is a good measure. Any thread.
        """
        line, text = self._native.report()
        return {**json.loads(line), "text": text}

    def note_step(self, seconds: float) -> None:
        """A step of training took so long: reports then tell of steps that took much longer."""
        self._native.note_step(seconds)

    def describe(self) -> str:
        """How files are read, and why so."""
        return self._native.describe()

    def fingerprint(self) -> int:
        """Equal on ranks that see the same data."""
        return self._native.fingerprint()

    def close(self) -> None:
        """Ends its threads. Tensors that were given stay."""
        self._last = None
        self._native.close()

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a loader has threads and cannot be sent to another process: make one there, or, in "
            "torch.utils.data.DataLoader, give num_workers=0"
        )


class Dataset(DataLoader, IterableDataset):
    """The same for code that insists on PyTorch's loader.

    ``torch.utils.data.DataLoader(Dataset(...), batch_size=None)``: a sample of it is one of our
    batches, and num_workers is 0. It keeps the protocol of torchdata's StatefulDataLoader.
    """


def _close_all() -> None:
    for loader in list(_open_loaders):
        loader.close()


atexit.register(_close_all)


def _place(rank: int | None, ranks: int | None, group: Any) -> tuple[int, int]:
    """Which of the ranks that read different samples this one is."""
    if (rank is None) != (ranks is None):
        raise ValueError(f"rank is {rank} and ranks is {ranks}; give both, or neither")
    if rank is not None and ranks is not None:
        if group is not None:
            raise ValueError("rank and ranks are given, and a group too; give one of them")
        return rank, ranks
    if group is not None and hasattr(group, "get_coordinate"):
        return _place_in_mesh(group)
    if dist.is_available() and dist.is_initialized():
        if dist.get_rank(group) < 0:
            raise ValueError("this rank is no member of the group whose ranks share the samples")
        return dist.get_rank(group), dist.get_world_size(group)
    launched = os.environ.get("WORLD_SIZE", "1")
    if launched != "1":
        raise ValueError(
            f"a launcher started {launched} ranks (WORLD_SIZE) and torch.distributed is not "
            "initialized: call init_process_group() first, or give rank and ranks"
        )
    return 0, 1


def _ranks_of(group: Any) -> list[int] | None:
    """Of the job, those that read different samples of the same data; None where there is no job."""
    if not (dist.is_available() and dist.is_initialized()):
        return None
    if group is not None and hasattr(group, "get_coordinate"):
        return group.mesh.flatten().tolist()
    return dist.get_process_group_ranks(group)


def _place_in_mesh(mesh: Any) -> tuple[int, int]:
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise ValueError("this rank is not in the mesh whose ranks share the samples")
    rank = 0
    for place, size in zip(coordinate, mesh.mesh.shape, strict=True):
        rank = rank * size + place
    return rank, mesh.size()


def _as_json(paths: Paths, options: dict[str, Any]) -> dict[str, Any]:
    """The options' JSON, but for what the constructor names."""
    known = [key for keys in _SECTIONS.values() for key in keys]
    for key in options:
        if key not in known:
            close = difflib.get_close_matches(key, known, 1)
            hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"
            raise TypeError(f"DataLoader has no option {key}{hint}")
    of_sources = {key: options[key] for key in _SECTIONS["source"] if key in options}
    order, reading = (
        {key: options[key] for key in _SECTIONS[name] if key in options}
        for name in ("order", "reading")
    )
    sources = [{**of_sources, **source} for source in _sources(paths)]
    cache = {key.removeprefix("cache_"): options[key] for key in _SECTIONS["cache"] if key in options}
    if "folder" in cache:
        cache["folder"] = os.fspath(cache["folder"])
    more: dict[str, Any] = {key: options[key] for key in _SECTIONS[""] if key in options}
    if cache:
        more["cache"] = cache
    return {"sources": sources, "order": order, "reading": reading, **more}


def _sources(paths: Paths) -> list[dict[str, Any]]:
    if isinstance(paths, (str, os.PathLike, Mapping)):
        paths = [paths]
    mixed = [path for path in paths if isinstance(path, Mapping)]
    if not mixed:
        return [{"paths": [os.fspath(path) for path in paths]}]
    if len(mixed) < len(paths):
        raise ValueError("paths are mappings and names: give one kind, such as {'paths': [...]} for each")
    return [{**source, "paths": _sources(source.get("paths", []))[0]["paths"]} for source in mixed]


def _take_names(sources: list[dict[str, Any]]) -> list[list[bytes]]:
    """The paths as the system has them. What stands for them in JSON is always UTF-8."""
    names = [[os.fsencode(path) for path in source["paths"]] for source in sources]
    for source, own in zip(sources, names, strict=True):
        source["paths"] = [name.decode(errors="replace") for name in own]
    return names


def _stages(decode: Decode | None) -> list[tuple[str, Callable[[dict, int], dict | None]]]:
    if decode is None:
        return []
    if isinstance(decode, Mapping):
        return [(name, _of_field(name, function)) for name, function in decode.items()]
    functions = [decode] if callable(decode) else list(decode)
    return [(getattr(one, "__name__", type(one).__name__), _of_record(one)) for one in functions]


def _of_field(name: str, function: Callable[[Any], Any]) -> Callable[[dict, int], dict | None]:
    def run(fields: dict, _: int) -> None:
        if name in fields:
            fields[name] = function(fields[name])

    return run


def _of_record(function: Callable[[Record], dict | None]) -> Callable[[dict, int], dict | None]:
    def run(fields: dict, sample: int) -> dict:
        record = Record(fields, sample)
        changed = function(record)
        return record if changed is None else changed

    return run
