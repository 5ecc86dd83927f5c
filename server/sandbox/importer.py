"""Where the model's imports come from, beside the standard library. Standard library only.

`PackageFinder` knows a fixed list of packages by name and place, so nothing else of a site-packages folder can be found
and the folder itself need not be listable. `MemoryImporter` holds the compiled code of every pure module, for sealed
children that can open no path; extension modules are imported before the first fork.
"""

import importlib.util
import marshal
import os
from collections.abc import Iterator, Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType

_SKIPPED_FOLDERS = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idlelib", "ensurepip", "turtledemo", "lib2to3", "__pycache__"}
)
# Not of the library: what greets a person, and what belongs to the installation (Debian's is a link to /etc).
_LEFT_OUT = frozenset({"antigravity", "this", "__main__", "turtle", "sitecustomize", "usercustomize"})


class PackageFinder(MetaPathFinder):
    """Finds the allowed packages by their place."""

    def __init__(self, packages: dict[str, str]) -> None:
        self._packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        place = self._packages.get(fullname)
        if place is None:
            return None
        if not os.path.isdir(place):
            return importlib.util.spec_from_file_location(fullname, place)
        return importlib.util.spec_from_file_location(
            fullname, os.path.join(place, "__init__.py"), submodule_search_locations=[place]
        )


class MemoryImporter(MetaPathFinder, InspectLoader):
    """Pure modules as marshalled code, by full name."""

    def __init__(self) -> None:
        self._code: dict[str, tuple[bytes, bool]] = {}

    def __len__(self) -> int:
        return len(self._code)

    def add_tree(self, root: str, prefix: str = "") -> None:
        """Take in every module under a folder: those of the package `prefix`, or top-level ones."""
        for name, path, is_package in _pure_modules(root, prefix):
            self._add(name, path, is_package)

    def add_package(self, name: str, place: str) -> None:
        init = os.path.join(place, "__init__.py")
        if os.path.exists(init):
            self._add(name, init, True)
            self.add_tree(place, name + ".")

    def _add(self, name: str, path: str, is_package: bool) -> None:
        try:
            code = SourceFileLoader(name, path).get_code(name)  # from the compiled file where that is fresh
        except (SyntaxError, ValueError):  # templates and deliberately broken files
            return
        self._code.setdefault(name, (marshal.dumps(code), is_package))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        entry = self._code.get(fullname)
        return None if entry is None else ModuleSpec(fullname, self, origin="memory", is_package=entry[1])

    def get_code(self, fullname: str) -> CodeType:
        code = marshal.loads(self._code[fullname][0])
        assert isinstance(code, CodeType)
        return code

    def get_source(self, fullname: str) -> None:
        return None

    def is_package(self, fullname: str) -> bool:
        return self._code[fullname][1]

    def exec_module(self, module: ModuleType) -> None:
        exec(self.get_code(module.__name__), module.__dict__)


def _pure_modules(root: str, prefix: str) -> Iterator[tuple[str, str, bool]]:
    with os.scandir(root) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            stem, suffix = os.path.splitext(entry.name)
            if entry.is_dir():
                init = os.path.join(entry.path, "__init__.py")
                if entry.name in _SKIPPED_FOLDERS or not entry.name.isidentifier() or not os.path.exists(init):
                    continue
                yield prefix + entry.name, init, True
                yield from _pure_modules(entry.path, prefix + entry.name + ".")
            elif suffix == ".py" and stem.isidentifier() and stem != "__init__" and prefix + stem not in _LEFT_OUT:
                yield prefix + stem, entry.path, False


def extension_modules(folders: Sequence[str]) -> list[str]:
    """Names of the standard library's extension modules; those of its own tests are left out."""
    names = set()
    for folder in folders:
        for entry in os.listdir(folder) if os.path.isdir(folder) else ():
            stem = entry.split(".", 1)[0]
            if any(entry.endswith(suffix) for suffix in EXTENSION_SUFFIXES) and "test" not in stem:
                names.add(stem)
    return sorted(names - {"_tkinter", "xxlimited", "xxlimited_35", "xxsubtype", "_curses_panel", "readline"})


def load_into_memory(packages: dict[str, str], stdlib: Sequence[str]) -> MemoryImporter:
    """Every pure module of the standard library and the packages."""
    memory = MemoryImporter()
    for folder in stdlib:
        if os.path.isdir(folder) and not folder.endswith("lib-dynload"):
            memory.add_tree(folder)
    for name, place in packages.items():
        memory.add_package(name, place)
    return memory
