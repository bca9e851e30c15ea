"""Checkpoints, with SMP's names and layout: a part of each rank, or the whole model in one file.

A checkpoint PATH, TAG is
    PATH/TAG_partial/model_P_T.pt, optimizer_P_T.pt   of pipeline rank P, tensor rank T
    PATH/TAG_partial/user_content.pt, random.pt       or, of a whole one,
    PATH/TAG, optimizer_TAG, user_content_TAG, random_TAG
    PATH/newest                                       the tag of the last one that is complete
Each file is written under another name, then synced and renamed. All files of one call carry its
number, so what two calls have written in parts is told from a checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import pickle
import re
import secrets
import shutil
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from .model import DistributedModel, latest_model
from .optimizer import DistributedOptimizer, joined, latest_optimizer
from .split import Split
from .state import local_rank, mp_rank, pp_rank, rdp_rank, state, tp_rank

_PART = re.compile(r"(model|optimizer)_(\d+)_(\d+)(?:_(\d+))?\.pt")
Path = str | os.PathLike


def save(obj: Any, f: Path, partial: bool = True, pickle_module: Any = pickle, pickle_protocol: int = 2) -> None:
    """Writes a part of each rank of a model to f_{mp_rank}, or rank 0's object to f.

    With tensor parallelism parts are f_{pp_rank}_{tp_rank}. The first replica writes. Every rank
    calls it; if one cannot write, all raise. pickle_module, pickle_protocol: as torch.save takes them.
    """
    error = None
    if (rdp_rank() if partial else state.rank) == 0:
        pickled = {"pickle_module": pickle_module, "pickle_protocol": pickle_protocol}
        error = _attempt(lambda: _write(_part_name(f) if partial else os.fspath(f), obj, **pickled))
    _agree(error)


def load(f: Path, map_location: Any = None, pickle_module: Any = None, partial: bool = True,
         **pickle_load_args: Any) -> Any:
    """What save() has written: this rank's part, or the whole. Unpickles: take your own files.

    pickle_module, pickle_load_args: as torch.load takes them.
    """
    name = _part_name(f) if partial else os.fspath(f)
    return torch.load(name, map_location=map_location, pickle_module=pickle_module, weights_only=False,
                      **pickle_load_args)


def save_checkpoint(
    path: Path,
    tag: str,
    partial: bool = True,
    model: DistributedModel | None = None,
    optimizer: DistributedOptimizer | None = None,
    user_content: Any = None,
    translate_if_full: bool = True,
    num_kept_partial_checkpoints: int | None = None,
) -> None:
    """Writes model, optimizer, random streams and what the script adds. Every rank calls it.

    partial: parts of the model, of each rank of the pipeline; else PATH/TAG is the whole state,
    as model.state_dict() of the plain module gives it. num_kept_partial_checkpoints: older partial
    ones are removed. translate_if_full: taken; names are the plain module's already. model and
    optimizer are the program's by default. ValueError between the passes of one update; RuntimeError
    on every rank if one cannot write.
    """
    model, optimizer = model or latest_model(), optimizer or latest_optimizer()
    if model.between_passes:
        raise ValueError(
            "gradients of earlier passes wait for the next: save a checkpoint after the last of "
            "backward_passes_per_step"
        )
    if not model.assignment and state.placement.pipeline > 1:
        raise ValueError("the model is not split yet: save a checkpoint after the first step")
    _require_tag(tag)
    number = _from_rank_0(secrets.token_hex(8))
    folder = pathlib.Path(path)
    content = {"number": number, "user_content": user_content}
    random = {"number": number, "streams": _streams()}
    if partial:
        files = _partial_files(model, optimizer, number)
        extra = {"user_content.pt": content, "random.pt": random}
        place = folder / f"{tag}_partial"
    else:
        files = _whole_files(model, optimizer, tag)
        extra = {f"user_content_{tag}": content, f"random_{tag}": random}
        place = folder
    files |= extra if _first_of_host() else {}
    _write_all(place, files)
    if _first_of_host():
        error = _attempt(lambda: _write_text(folder / "newest", tag))
        keep = num_kept_partial_checkpoints
        error = error or _attempt(lambda: _forget_old(folder, keep) if keep else None)
    else:
        error = None
    _agree(error)


def resume_from_checkpoint(
    path: Path,
    tag: str | None = None,
    partial: bool = True,
    strict: bool = True,
    load_optimizer: bool = True,
    load_sharded_optimizer_state: bool = True,
    translate_function: Callable[[dict], dict] | None = None,
) -> Any:
    """Loads what save_checkpoint() has written, and returns its user_content.

    After DistributedModel and DistributedOptimizer are made; before the first step or later. tag:
    the newest by default. A partial checkpoint also brings its split, if as many ranks have the
    model; under another number, or once the model is split otherwise, each rank reads its names
    from all parts. Random streams are restored on the ranks that had one; with it training goes on
    as if it had not stopped, bit by bit. strict: KeyError if a parameter is missing.
    load_optimizer, load_sharded_optimizer_state: both false leave the optimizer as it is.
    translate_function: makes names of the model of the file's names. ValueError says what is
    missing. user_content is unpickled: take checkpoints of your own.
    """
    model, optimizer = latest_model(), latest_optimizer()
    folder = pathlib.Path(path)
    tag = tag or _newest(folder)
    wanted = optimizer is not None and load_optimizer and load_sharded_optimizer_state
    if partial:
        place = folder / f"{tag}_partial"
        parts = _read_parts(place)
        owners = parts["model"][0]["owners"]
        if owners and not model.assignment and len(parts["model"]) == state.placement.pipeline:
            model.kept_split = Split(owners, parts["model"][0].get("at_operations", False))
        weights = {k: v for part in parts["model"] for k, v in part["state"].items()}
        optimizers = [part["state"] for part in parts["optimizer"]]
        names = [name for name, _ in model.module.named_parameters()]
        whole = joined(optimizers, names) if optimizers else None
        content, random = _read(place / "user_content.pt"), _read(place / "random.pt")
        _require_same_number(place, parts["model"][0]["number"], content, random)
    else:
        weights = _read(folder / tag)
        whole = _read(folder / f"optimizer_{tag}", optional=True)
        content = _read(folder / f"user_content_{tag}", optional=True) or {"user_content": None}
        random = _read(folder / f"random_{tag}", optional=True) or {"streams": {}}
    model.load_state_dict(translate_function(weights) if translate_function else weights, strict)
    if wanted and whole is not None:
        optimizer.load_state_dict(whole)
    _restore_stream(random["streams"])
    return content["user_content"]


# What is written.


def _partial_files(model: DistributedModel, optimizer: DistributedOptimizer | None,
                   number: str) -> dict[str, Any]:
    here = {"number": number, "pipeline": state.placement.pipeline,
            "tensor": state.placement.tensor}
    files = {}
    place = f"{pp_rank()}_{tp_rank()}"
    own = model.own_state()  # by all: replicas may share parameters
    if rdp_rank() == 0:
        files[f"model_{place}.pt"] = here | {
            "owners": model.assignment, "at_operations": model.is_split_at_operations, "state": own}
    sharded = bool(state.config.get("shard_optimizer_state"))
    updates = None if optimizer is None else optimizer.local_state_dict()
    if updates is not None and (sharded or rdp_rank() == 0):
        name = f"optimizer_{place}_{rdp_rank()}.pt" if sharded else f"optimizer_{place}.pt"
        replicas = state.placement.replicas if sharded else 1
        files[name] = here | {"replicas": replicas, "state": updates}
    return files


def _whole_files(model: DistributedModel, optimizer: DistributedOptimizer | None,
                 tag: str) -> dict[str, Any]:
    files: dict[str, Any] = {tag: model.state_dict()}
    if optimizer is not None:
        files[f"optimizer_{tag}"] = optimizer.state_dict()
    return files if state.rank == 0 else {}


def _write_all(folder: pathlib.Path, files: dict[str, Any]) -> None:
    """Under other names first; they become a checkpoint once every rank has written its own."""
    beside = {name: folder / f"{name}.{state.rank}.writing" for name in files}

    def write() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in files.items():
            with open(beside[name], "wb") as file:
                torch.save(value, file)
                file.flush()
                os.fsync(file.fileno())

    def rename() -> None:
        for name in files:
            os.replace(beside[name], folder / name)
        _sync_folder(folder)

    try:
        _agree(_attempt(write))
        _agree(_attempt(rename))
    finally:
        for path in beside.values():
            with contextlib.suppress(OSError):  # what cannot be written is not there
                path.unlink()


def _write(path: str, value: Any, **pickled: Any) -> None:
    beside = f"{path}.{state.rank}.writing"
    try:
        with open(beside, "wb") as file:
            torch.save(value, file, **pickled)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        pathlib.Path(beside).unlink(missing_ok=True)


def _write_text(path: pathlib.Path, text: str) -> None:
    beside = path.with_name(f"{path.name}.{state.rank}.writing")
    beside.write_text(text)
    os.replace(beside, path)
    _sync_folder(path.parent)


def _sync_folder(folder: pathlib.Path) -> None:
    """Names are safe once their folder is."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _forget_old(folder: pathlib.Path, kept: int) -> None:
    """Hosts that see one folder do it side by side, so what is gone already is no error."""
    ages = {}
    for one in folder.glob("*_partial"):
        with contextlib.suppress(FileNotFoundError):
            ages[one] = one.stat().st_mtime_ns
    for old in sorted(ages, key=ages.__getitem__)[:-kept]:
        shutil.rmtree(old, ignore_errors=True)


# What is read.


def _read_parts(folder: pathlib.Path) -> dict[str, list[dict[str, Any]]]:
    """Every rank's part, in the order of pipeline ranks. ValueError if they are not one whole."""
    parts: dict[str, dict[tuple[int, ...], dict]] = {"model": {}, "optimizer": {}}
    for path in folder.glob("*.pt"):
        named = _PART.fullmatch(path.name)
        if named:
            place = tuple(int(one) for one in named.groups()[1:] if one is not None)
            parts[named[1]][place] = _read(path)
    if not parts["model"]:
        raise ValueError(f"{os.fspath(folder)!r} has no model_*.pt: is it a partial checkpoint?")
    first = next(iter(parts["model"].values()))
    _require_whole(folder, "model", parts["model"], first)
    if first["tensor"] != state.placement.tensor:
        raise ValueError(
            f"{os.fspath(folder)!r} was saved with tensor_parallel_degree {first['tensor']}, and "
            f"there are {state.placement.tensor}: save with partial=False to load it under another"
        )
    if parts["optimizer"]:
        _require_whole(folder, "optimizer", parts["optimizer"], first)
    own = {kind: {place: part for place, part in found.items() if place[1] == tp_rank()}
           for kind, found in parts.items()}
    return {kind: [found[place] for place in sorted(found)] for kind, found in own.items()}


def _require_whole(folder: pathlib.Path, kind: str, found: dict[tuple[int, ...], dict],
                   first: dict[str, Any]) -> None:
    replicas = next(iter(found.values())).get("replicas", 1)
    expected = first["pipeline"] * first["tensor"] * replicas
    strange = [place for place, part in found.items() if part["number"] != first["number"]]
    if strange or len(found) != expected:
        raise ValueError(
            f"{os.fspath(folder)!r} is incomplete: {len(found) - len(strange)} of {expected} files "
            f"{kind}_*.pt are of one save; take another tag"
        )


def _require_same_number(folder: pathlib.Path, number: str, *others: dict[str, Any]) -> None:
    if any(other["number"] != number for other in others):
        raise ValueError(f"{os.fspath(folder)!r} holds files of two saves: take another tag")


def _read(path: pathlib.Path, optional: bool = False) -> Any:
    """Tensors stay in the file until they are used."""
    if optional and not path.exists():
        return None
    pickled = path.name.startswith("user_content")
    try:
        return torch.load(path, map_location="cpu", weights_only=not pickled, mmap=not pickled)
    except FileNotFoundError as error:
        raise ValueError(f"there is no checkpoint file {os.fspath(path)!r}") from error


def _newest(folder: pathlib.Path) -> str:
    try:
        return (folder / "newest").read_text().strip()
    except OSError as error:
        raise ValueError(
            f"{os.fspath(folder)!r} names no newest checkpoint ({error.strerror}): give a tag"
        ) from error


# Random streams.


def _streams() -> dict[str, torch.Tensor]:
    """Of every rank, by its place."""
    everyones: list[Any] = [None] * state.world_size
    dist.all_gather_object(everyones, (_place(pp_rank()), torch.get_rng_state()))
    return dict(everyones)


def _restore_stream(streams: dict[str, torch.Tensor]) -> None:
    """A pipeline of more ranks than before has new ones, which take the first's: none is drawn."""
    stream = streams.get(_place(pp_rank()), streams.get(_place(0)))
    if stream is not None:
        torch.set_rng_state(stream)


def _place(pipeline_rank: int) -> str:
    return f"{pipeline_rank}_{tp_rank()}_{rdp_rank()}"


# Ranks that act together.


def _attempt(call: Callable[[], None]) -> str | None:
    """What went wrong."""
    try:
        call()
    except Exception as error:  # told to every rank by _agree
        return f"{type(error).__name__}: {error}"
    return None


def _agree(error: str | None) -> None:
    """RuntimeError on every rank if one has an error."""
    everyones: list[Any] = [None] * state.world_size
    dist.all_gather_object(everyones, error)
    for rank, one in enumerate(everyones):
        if one is not None:
            raise RuntimeError(f"rank {rank} cannot write the checkpoint: {one}")


def _from_rank_0(value: Any) -> Any:
    held = [value]
    dist.broadcast_object_list(held, src=0)
    return held[0]


def _first_of_host() -> bool:
    """Hosts may have folders of their own under one name."""
    try:
        return local_rank() == 0
    except RuntimeError:  # no launcher says
        return state.rank == 0


def _part_name(f: Path) -> str:
    places = [mp_rank()] if state.placement.tensor == 1 else [pp_rank(), tp_rank()]
    return "_".join([os.fspath(f), *map(str, places)])


def _require_tag(tag: str) -> None:
    if not tag or tag in (".", "..") or "/" in tag:
        raise ValueError(f"tag = {tag!r}: it is a file's name, as \"step_100\"")
