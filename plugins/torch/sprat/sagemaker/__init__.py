"""Answers a script's imports of SageMaker's libraries with Sprat's parts."""

from __future__ import annotations

import os

from sprat.replacement import VARIABLE, take_the_place_of
from sprat.sagemaker.finder import install

MARK = "sagemaker"


def answer(distribution: str | None = None) -> None:
    """From here on, also in Python programs that this one starts.

    distribution: the JSON file whose configuration init() takes where the script gives none. The
    backend smddp is sprat, and so is nccl where there is no GPU.
    """
    os.environ[VARIABLE] = f"{MARK}:{os.path.abspath(distribution)}" if distribution else MARK
    take_the_place_of("gloo", "smddp", "nccl")
    install()


def distribution_of(value: str) -> str | None:
    """The file that the variable's value names."""
    return value.partition(":")[2] or None
