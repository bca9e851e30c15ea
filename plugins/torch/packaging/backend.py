"""Builds the package by scikit-build-core, against the PyTorch that the environment has."""

from find_torch import torch_folder
from scikit_build_core.build import *  # noqa: F403  (the hooks that are not changed)
from scikit_build_core.build import get_requires_for_build_wheel as _requires

# Where there is none yet, pip will install this one with the package.
TORCH = "torch==2.11.0"


def get_requires_for_build_wheel(config_settings=None):
    """PyTorch itself only where the environment has none: it is large."""
    return [*_requires(config_settings), *([] if torch_folder() else [TORCH])]


def get_requires_for_build_editable(config_settings=None):
    return get_requires_for_build_wheel(config_settings)
