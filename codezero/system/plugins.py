"""Code of the user's own that a setting names: found, loaded and looked at. It runs with this node's rights.

It is `package.module:attribute`, `path/file.py:attribute` (both also from the working directory), a mapping in Hydra's
form, or the name of an entry point. Nothing that a peer or an invitation sends is ever given to this module."""

import difflib
import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import sys
import traceback
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from threading import RLock
from typing import Any

from codezero.errors import CodeZeroError, ConfigError, OwnCodeError

TARGET = "_target_"
FORMS = "package.module:attribute or path/file.py:attribute"
_loading = RLock()


class _Beside:
    """The last finder of modules: the ones that a setting names, and what such a module imports from its own folder. It
    is asked after everything that is installed, and only for these importers: no folder gets into `sys.path`."""

    def __init__(self) -> None:
        self.named: set[str] = set()  # packages and modules that are looked for in the working directory
        self.folders: dict[str, str] = {}  # of those that were loaded from there or by their file

    def find_spec(self, name: str, path: Sequence[str] | None = None, _target: object = None) -> ModuleSpec | None:
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] - a finder is not passed who imports
        while frame.f_back and str(frame.f_globals.get("__name__")).startswith(("importlib", "_frozen_importlib")):
            frame = frame.f_back
        importer = str(frame.f_globals.get("__name__")).partition(".")[0]
        folder = str(Path.cwd()) if name in self.named else self.folders.get(importer)
        target = PathFinder.find_spec(name, [folder]) if folder and path is None else None
        if target and folder:
            self.folders[name] = folder
        return target


_beside = _Beside()
sys.meta_path.append(_beside)


def load_object(spec: str | Mapping[str, Any], key: str, needs: Sequence[str] = (), group: str = "") -> Any:
    """The object that `spec`, the value of the setting `key`, names.

    A class is called without arguments, the `_target_` of a mapping with the mapping's other entries as they are: a
    `_target_` within them is not followed. All else is returned as it is. needs: what the object must have. group: of
    entry points, behind `codezero.`. Raises ConfigError of one line."""
    place, attribute, what = _parts(spec, key, group)
    with _loading:
        target: Any = _module(place, what)
    try:
        target = reduce(getattr, attribute.split("."), target)
    except AttributeError as error:
        names = [name for name in dir(target) if not name.startswith("_")]
        near = difflib.get_close_matches(attribute, names, n=3, cutoff=0.0)
        raise ConfigError(f"{what}: {place} has no {attribute}; it has {', '.join(near) or 'nothing'}") from error
    if isinstance(spec, Mapping) or isinstance(target, type):
        arguments = {name: value for name, value in spec.items() if name != TARGET} if isinstance(spec, Mapping) else {}
        with blamed(ConfigError, what):
            target = target(**arguments)
    if missing := [name for name in needs if not hasattr(target, name)]:
        raise ConfigError(f"{what} is a {type(target).__name__} without {', '.join(missing)}; add what is missing")
    return target


def file_of(spec: str | Mapping[str, Any], key: str, group: str = "") -> Path:
    """The file that `load_object` would run first. Only the packages around it are loaded. Raises ConfigError."""
    place, _, what = _parts(spec, key, group)
    if place.endswith(".py"):
        return _existing(place, what)
    _beside.named.add(place.partition(".")[0])
    with blamed(ConfigError, what):
        target = importlib.util.find_spec(place)
        if target is None or not target.origin or not Path(target.origin).is_file():
            raise ConfigError(f"{what}: there is no module {place}; install it, or write {FORMS}")
    return Path(target.origin)


@contextmanager
def blamed(kind: type[CodeZeroError], what: str) -> Generator[None]:
    """Raise `kind` for whatever else the user's code raises in the block: one line that says what, the cause and where.
    Code that leaves, as by sys.exit, does not decide how the process ends: it is an OwnCodeError."""
    try:
        yield
    except (kind, OwnCodeError):
        raise
    except SystemExit as error:
        raise OwnCodeError(f"{what} left with sys.exit({error.code!r:.200}){_place(error)}; let it return") from error
    except Exception as error:
        first = "".join(f": {line}" for line in str(error).splitlines()[:1])
        raise kind(f"{what} raised {type(error).__name__}{first}{_place(error)}") from error


def _place(error: BaseException) -> str:
    """Where the first file of others, below `blamed` and its block, was last; empty: nowhere."""
    inside = (f"{Path(__file__).parent}/", f"{Path(importlib.__file__).parent}/", "<frozen importlib")
    frames = [each for each in traceback.extract_tb(error.__traceback__)[2:] if not each.filename.startswith(inside)]
    lines = [each.lineno for each in frames if each.filename == frames[0].filename]
    return f" ({frames[0].filename}:{lines[-1]})" if frames else ""


def _parts(spec: str | Mapping[str, Any], key: str, group: str) -> tuple[str, str, str]:
    """Module or file, attribute, and the words that begin every error."""
    name = str(spec.get(TARGET, "")) if isinstance(spec, Mapping) else spec
    what = f"{key}={name}"
    place, colon, attribute = name.rpartition(":")
    if not colon and isinstance(spec, Mapping):
        place, _, attribute = name.rpartition(".")
    if not place:
        known = {point.name: point for point in importlib.metadata.entry_points(group=f"codezero.{group}")}
        if name not in known:
            there = f", or an entry point of codezero.{group}: {', '.join(sorted(known)) or 'none is installed'}"
            raise ConfigError(f"{what} names nothing; write {FORMS}{there if group else ''}")
        place, attribute = known[name].module, known[name].attr
    return place, attribute, what


def _module(place: str, what: str) -> object:
    with blamed(ConfigError, f"{what}: {place}"):
        try:
            if place.endswith(".py"):
                return _of_file(_existing(place, what))
            _beside.named.add(place.partition(".")[0])
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            missing = error.name or "something"
            if place == missing or place.startswith(f"{missing}."):
                raise ConfigError(f"{what}: there is no module {missing}; install it, or write {FORMS}") from error
            raise ConfigError(f"{what}: {place} imports {missing}, which is not installed; install it") from error


def _existing(place: str, what: str) -> Path:
    if not (path := Path(os.path.expanduser(place)).resolve()).is_file():
        raise ConfigError(f"{what}: there is no file {path}; name it from the folder that the command is started in")
    return path


def _of_file(path: Path) -> object:
    """Run once in a process; a name of its own keeps it apart from every other module."""
    name = f"codezero_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if name not in sys.modules:
        target = importlib.util.spec_from_file_location(name, path)
        assert target is not None and target.loader is not None  # its name ends in .py
        _beside.folders[name] = str(path.parent)
        sys.modules[name] = importlib.util.module_from_spec(target)  # where dataclasses look for it
        try:
            target.loader.exec_module(sys.modules[name])
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
