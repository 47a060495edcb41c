"""C modules of the standard library → the same records as source.py makes, by inspecting their objects.

These are the only modules that pydocs imports, and only if a public name leads to them. Modules whose import
has side effects are skipped: `readline` writes to the terminal, and accelerators such as `_asyncio` import
half of the library, although their Python twins have the same docstrings. names.py decides what is public.
"""

import importlib
import importlib.machinery
import importlib.util
import inspect
import re
import types
import warnings
from collections.abc import Iterator

from gr2.data.pydocs.source import Module, Thing

NOT_IMPORTED = frozenset("readline _asyncio _elementtree _zoneinfo _tkinter".split())

FUNCTIONS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.ClassMethodDescriptorType)
ATTRIBUTES = (types.GetSetDescriptorType, types.MemberDescriptorType)

HIDDEN = {
    "re": ("Match", "Pattern"),
    "types": (
        *("AsyncGeneratorType", "CodeType", "CoroutineType", "FrameType", "FunctionType", "GeneratorType"),
        *("GenericAlias", "MappingProxyType", "MethodType", "ModuleType", "SimpleNamespace", "TracebackType"),
    ),
}
"""C types that no C module exports: Python modules get them with ``type(…)``, which parsing cannot follow."""


class Inspector:
    """Reads C modules; an object that several modules export is one Thing."""

    def __init__(self) -> None:
        """Start with nothing read."""
        self._things: dict[int, Thing] = {}

    def read(self, name: str) -> Module | None:
        """Import a C module and read its functions and classes; None if it is missing or not written in C."""
        if name in NOT_IMPORTED or not is_compiled(name):
            return None
        try:
            with warnings.catch_warnings():
                # modules that will be removed are still documented
                warnings.simplefilter("ignore", DeprecationWarning)
                module = importlib.import_module(name)
        except ImportError:  # it needs a shared library that this machine does not have
            return None
        found = Module(name, doc=_doc(module), compiled=True)
        for key, value in sorted(vars(module).items()):
            if not key.startswith("__") and (thing := self._thing(key, value, name)):
                found.bind(key, thing)
        return found

    def hidden(self) -> Iterator[tuple[str, str, Thing]]:
        """Module, name and Thing of C types that belong to Python modules already imported here."""
        for module in (re, types):
            for name in HIDDEN[module.__name__]:
                if thing := self._thing(name, getattr(module, name, None), module.__name__):
                    yield module.__name__, name, thing

    def _thing(self, name: str, value: object, home: str) -> Thing | None:
        if id(value) in self._things:  # safe: modules and classes keep their members alive
            return self._things[id(value)]
        if isinstance(value, type):
            thing = Thing(value.__name__, "class", _doc(value), _signature(value), home, compiled=True)
            self._things[id(value)] = thing
            for key, member in sorted(vars(value).items()):
                if not key.startswith("_") and (inner := self._member(key, member, home)):
                    thing.members[key] = inner
            bases = (self._thing(base.__name__, base, home) for base in value.__bases__ if base is not object)
            thing.bases = tuple(base for base in bases if base)
            return thing
        if isinstance(value, FUNCTIONS):
            thing = Thing(value.__name__, "function", _doc(value), _signature(value), home, compiled=True)
            return self._things.setdefault(id(value), thing)
        return None

    def _member(self, name: str, value: object, home: str) -> Thing | None:
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        if isinstance(value, ATTRIBUTES):
            return Thing(name, "property", _doc(value), home=home, compiled=True)
        if isinstance(value, FUNCTIONS):
            return Thing(name, "function", _doc(value), _signature(value), home, compiled=True)
        return None


def is_compiled(name: str) -> bool:
    """Whether a top-level module is built in or a C extension; the check does not import it."""
    if "." in name:
        return False
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    if spec is None or spec.origin is None:
        return False
    return spec.origin == "built-in" or spec.origin.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))


def _doc(value: object) -> str:
    doc = getattr(value, "__doc__", None)
    return inspect.cleandoc(doc) if isinstance(doc, str) else ""


def _signature(value: object) -> str:
    """The C signature without the bound argument (`self` or `$module`)."""
    text = getattr(value, "__text_signature__", None)
    if not isinstance(text, str):
        return ""
    text = " ".join(text.split())
    return re.sub(r"^\((\$\w+|self)(, /)?(, )?", "(", text)
