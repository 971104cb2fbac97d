"""Installed packages that generated code may import, found for the jail: their files, and those of what they need."""

import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from codezero.errors import ConfigError

MAX_PACKAGES = 64
"""With those that they need."""


def find_packages(names: Sequence[str]) -> tuple[Path, ...]:
    """The files and folders that the packages put beside each other where they are installed.

    names: as in `pip install`. Raises ConfigError for one that is not installed here.
    """
    waiting, known, paths = list(names), set[str](), dict[str, Path]()
    while waiting:
        name = waiting.pop()
        if canonicalize_name(name) in known:
            continue
        try:
            package = metadata.distribution(name)
        except (metadata.PackageNotFoundError, ValueError) as error:
            wanted = "" if name in names else f" (which one of {', '.join(names)} needs)"
            remedy = f"install it beside codezero: {sys.executable} -m pip install {name}"
            raise ConfigError(f"audit.packages: {name!r}{wanted} is not installed; {remedy}") from error
        known.add(canonicalize_name(name))
        if len(known) > MAX_PACKAGES:
            raise ConfigError(f"audit.packages: {', '.join(names)} need more than {MAX_PACKAGES} packages")
        for file in package.files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not top.endswith((".dist-info", ".pth", ".egg-info")):
                paths[top] = Path(str(package.locate_file(top)))
        needed = map(Requirement, package.requires or ())
        waiting += [each.name for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    return tuple(paths[top] for top in sorted(paths))
