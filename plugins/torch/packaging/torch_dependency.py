"""The package's dependency: the minor versions of PyTorch that its native modules are built against."""

from __future__ import annotations

from find_torch import DEFAULT, SERVED, minor_of, torch_folders, version_of


def requirement(minors: list[str]) -> str:
    """"torch==2.11.*" of ["2.11"]; of several a range, and what is missing in it."""
    if len(minors) == 1:
        return f"torch=={minors[0]}.*"
    in_order = [minor for minor in SERVED if minor in minors]
    between = SERVED[SERVED.index(in_order[0]):SERVED.index(in_order[-1])]
    last_major, last_minor = in_order[-1].split(".")
    missing = [f",!={minor}.*" for minor in between if minor not in minors]
    return f"torch>={in_order[0]},<{last_major}.{int(last_minor) + 1}{''.join(missing)}"


def dynamic_metadata(field: str, settings: dict[str, object] | None = None) -> list[str]:
    """As scikit-build-core asks for it: c10d has no stable ABI, so another minor would not do."""
    if field != "dependencies" or settings:
        raise ValueError(f"only dependencies come from here, without settings; asked for {field}")
    minors = [minor_of(version_of(folder)) for folder in torch_folders()]
    return [requirement(minors) if minors else DEFAULT]


def get_requires_for_dynamic_metadata(settings: dict[str, object] | None = None) -> list[str]:
    return []
