"""SMP v2's few helpers around checkpoints of a script."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable

def by_last_int(name: str) -> int:
    """SORT_BY_LAST_INT: 20 of "gpt2-3-20steps"; a name without a number is the oldest."""
    numbers = re.findall(r"\d+", name)
    return int(numbers[-1]) if numbers else -1


def limit_num_subdirs(folder: str | os.PathLike, most: int,
                      sort_fn: Callable[[str], int] = by_last_int, regex: str | None = None,
                      log: bool = True) -> None:
    """Removes the oldest of the folder's subfolders whose names the regex matches, but for `most`.

    sort_fn: of a name what it is sorted by. Only a rank with log=True removes and logs, so that one
    of several does. A folder that is not there has none; most = 0 removes all.
    """
    if most < 0:
        raise ValueError(f"limit_num_subdirs: {most} folders cannot be kept; give 0 or more")
    if not log or not os.path.isdir(folder):
        return
    names = [one.name for one in os.scandir(folder)
             if one.is_dir(follow_symlinks=False) and (regex is None or re.match(regex, one.name))]
    for name in sorted(names, key=sort_fn)[:max(0, len(names) - most)]:
        logging.getLogger("sprat.sagemaker").info("removing the checkpoint %s", name)
        shutil.rmtree(os.path.join(folder, name))


class PyTorchDistSaveShardedStrategy:
    """Taken by save() and async_save(), which know one way to write."""
