"""Builds the package by scikit-build-core, against the PyTorch that the environment has."""

from __future__ import annotations

import os
import pathlib

import source_package
from find_torch import DEFAULT, torch_folders
from scikit_build_core.build import *  # noqa: F403  (the hooks that are not changed)
from scikit_build_core.build import get_requires_for_build_wheel as _requires


def get_requires_for_build_wheel(config_settings=None):
    """PyTorch itself only where the environment has none: it is large."""
    return [*_requires(config_settings), *([] if torch_folders() else [DEFAULT])]


def get_requires_for_build_editable(config_settings=None):
    return get_requires_for_build_wheel(config_settings)


def get_requires_for_build_sdist(config_settings=None):
    return []


def build_sdist(sdist_directory, config_settings=None):
    """The library's sources and this package's, so that nothing else is needed to build them."""
    return source_package.write(pathlib.Path(os.getcwd()), pathlib.Path(sdist_directory))
