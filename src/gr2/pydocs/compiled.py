"""C modules of the standard library → the same records as source.py makes, by looking at the objects.

These are the only modules that pydocs imports, and only those a public name leads to. Left alone are the
ones whose import does something: `readline` writes to the terminal, and accelerators such as `_asyncio`
import half of the library, although their Python twins say the same. What is public is for names.py to say.
"""

import importlib
import importlib.machinery
import importlib.util
import inspect
import re
import types
import warnings
from collections.abc import Iterator

from gr2.pydocs.source import Module, Thing

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
"""C types that no C module offers: Python modules get them with ``type(…)``, which reading cannot follow."""


class Inspector:
    """Reads C modules; an object that several modules offer is one Thing."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._things: dict[int, Thing] = {}

    def read(self, name: str) -> Module | None:
        """Import a C module and read its functions and classes; None if it is not there or not C."""
        if name in NOT_IMPORTED or not is_compiled(name):
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", DeprecationWarning
                )  # a module to be removed is still documented
                module = importlib.import_module(name)
        except ImportError:  # built, but a shared library it needs is not on this machine
            return None
        found = Module(name, doc=_doc(module), compiled=True)
        for key, value in sorted(vars(module).items()):
            if not key.startswith("__") and (thing := self._thing(key, value, name)):
                found.bind(key, thing)
        return found

    def hidden(self) -> Iterator[tuple[str, str, Thing]]:
        """Module, name and Thing of the C types that live in Python modules this file has imported anyway."""
        for module in (re, types):
            for name in HIDDEN[module.__name__]:
                if thing := self._thing(name, getattr(module, name, None), module.__name__):
                    yield module.__name__, name, thing

    def _thing(self, name: str, value: object, home: str) -> Thing | None:
        if id(value) in self._things:  # safe: modules and their classes keep what they offer alive
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
    """Whether a top-level module is built in or an extension; finding out does not import it."""
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
    """The C signature without the argument that a method or module function is bound to."""
    text = getattr(value, "__text_signature__", None)
    if not isinstance(text, str):
        return ""
    text = " ".join(text.split())
    return re.sub(r"^\((\$\w+|self)(, /)?(, )?", "(", text)
