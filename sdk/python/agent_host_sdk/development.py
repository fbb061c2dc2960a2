"""The exports of a development build, which gets the plugin's sources from the host at the start of each call.

The component contains Python, this package, and the modules of other packages that the plugin imports. The host passes the
sources of the plugin as JSON: the name of the main module, and the text of each file.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import json
import linecache
import sys
from types import ModuleType
from typing import Any

from . import component, host

_sources: Any = None
_is_loaded = False


def load(modules: list[str]) -> dict[str, type]:
    """Imports modules that the plugin needs, and returns the classes that the component exports.

    Modules can be imported only while the component is built. Names that are not modules are ignored.
    """
    global _sources
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception:
            # The name is not a module, or importing the module fails. In the second case, the plugin fails in the same way.
            continue
    _sources = importlib.import_module("wit_world.imports.agent_host_development_sources_0_1_0")
    component.prepare.append(load_plugin)
    return component.load(require_functions=False)


def load_plugin() -> None:
    """Runs the plugin's main module, unless it has already run in this instance."""
    global _is_loaded
    if not _is_loaded:
        _is_loaded = True
        sources = json.loads(_sources.read())
        host.restrict(sources["asks"])
        sys.meta_path.insert(0, SourceFinder(sources["files"]))
        importlib.import_module(sources["main"])
        component.check_functions()


class SourceFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules in a dictionary with the paths and the texts of files."""

    def __init__(self, files: dict[str, str]):
        self.files = files

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        stem = name.replace(".", "/")
        for file, is_package in ((f"{stem}/__init__.py", True), (f"{stem}.py", False)):
            if file in self.files:
                return importlib.util.spec_from_loader(name, self, origin=file, is_package=is_package)
        return None

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        file = module.__spec__.origin
        text = self.files[file]
        # Tracebacks show lines of the sources.
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec"), module.__dict__)
