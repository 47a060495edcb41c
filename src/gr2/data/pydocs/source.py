"""Python source → what a module defines, imports and exports, without importing it.

Each file is parsed once with `ast` and never run. It gives definitions at module and class level (also under
`if`, `try` and `with`) with their docstrings and signatures, imports, plain aliases (``x = y.z``), instances
(``x = C()``), and `__all__` as far as it consists of literals, names and other modules' `__all__`. names.py
decides what is public.
"""

import ast
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

logger = logging.getLogger(__name__)

Function = ast.FunctionDef | ast.AsyncFunctionDef
NOT_READ = frozenset(
    "test tests idle_test conftest __main__ _vendor _vendored _bundled vendor site-packages".split()
)
"""Folders and modules that are not documentation of a package: its tests and copies of other packages."""


@dataclass(frozen=True)
class Ref:
    """A reference to something defined elsewhere: a path of attributes from a module."""

    path: tuple[str, ...]
    module: str = ""
    """The module where the path begins; empty for the module that contains the reference."""
    called: bool = False
    """The reference is to an instance of the class at the path."""


@dataclass(eq=False)
class Thing:
    """A class, function or property, whatever names it has."""

    name: str
    kind: str
    doc: str = ""
    signature: str = ""
    """The arguments, in parentheses; empty if unknown or not callable."""
    home: str = ""
    compiled: bool = False
    members: "dict[str, Thing]" = field(default_factory=dict)
    bases: "tuple[Ref | Thing, ...]" = ()
    doc_of: Ref | None = None
    """The object that gives it a docstring at run time, if it has none of its own."""


@dataclass(eq=False)
class Module:
    """A module: what each of its names may be bound to, in source order."""

    name: str
    doc: str = ""
    package: bool = False
    compiled: bool = False
    bound: dict[str, list[Thing | Ref]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    """Modules that it imports with ``from m import *``."""
    listed: list[str | Ref] | None = None
    """`__all__`: names, and references to other modules or their `__all__`; None if there is none."""
    listed_in_part: bool = False
    """Whether `__all__` has other parts that are only known at run time."""
    mentioned: set[str] = field(default_factory=set)
    """Every module that it imports, also inside functions."""

    def bind(self, name: str, value: Thing | Ref) -> None:
        """Add something that a name may be bound to."""
        self.bound.setdefault(name, []).append(value)

    def replace_by(self, name: str) -> None:
        """Record that another module replaces it: ``sys.modules[__name__] = name``."""
        self.stars += [ref.module for ref in self.bound.get(name, ()) if isinstance(ref, Ref)]
        self.listed = [*(self.listed or ()), Ref((name,))]


def read_package(root: Path, name: str) -> Iterator[Module]:
    """Read every module of a package folder, or one file; files that do not parse are logged and skipped."""
    if root.is_file():
        files = [(name, root, False)]
    else:
        files = list(_files(root, name))
    for module, path, package in files:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # these warnings concern the author of the file
                tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, RecursionError, OSError) as error:
            logger.warning("%s: skipped, it does not parse: %s", path, error)
            continue
        yield read_module(module, tree, package)


def _files(folder: Path, name: str) -> Iterator[tuple[str, Path, bool]]:
    for path in sorted(folder.iterdir()):
        stem = path.stem
        if stem in NOT_READ or not stem.isidentifier():
            continue
        if path.suffix == ".py" and path.is_file():
            yield (name, path, True) if stem == "__init__" else (f"{name}.{stem}", path, False)
        elif not path.suffix and path.is_dir():
            yield from _files(path, f"{name}.{stem}")


def read_module(name: str, tree: ast.Module, package: bool) -> Module:
    """What a parsed module binds to its names."""
    module = Module(name, doc=ast.get_docstring(tree) or "", package=package)
    constants: dict[str, ast.expr] = {}
    for node in _statements(tree.body):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if thing := _function(node, name, method=False):
                    module.bind(node.name, thing)
            case ast.ClassDef():
                module.bind(node.name, _class(node, name))
            case ast.Import() | ast.ImportFrom():
                _import(module, node)
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                module.listed = []
                _list(module, value, constants)
            case ast.AugAssign(target=ast.Name(id="__all__"), value=value):
                _list(module, value, constants)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="__all__")), args=[value])):
                _list(module, value, constants)
            case ast.Assign(targets=[ast.Name(id="__doc__")], value=ast.Constant(value=str(text))):
                module.doc = module.doc or text
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id=owner), attr="__doc__")],
                value=ast.Attribute(value=source, attr="__doc__"),
            ):
                for documented in module.bound.get(owner, ()):
                    if isinstance(documented, Thing):
                        documented.doc_of = _reference(source)
            case ast.Assign(targets=[ast.Subscript(slice=ast.Name(id="__name__"))], value=ast.Name(id=other)):
                module.replace_by(other)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Name):
                        constants[target.id] = value
                        if ref := _reference(value):
                            module.bind(target.id, ref)
    there = module.bound.keys() | constants.keys()
    if not module.stars and any(isinstance(name, str) and name not in there for name in module.listed or ()):
        for inner in ast.walk(tree):  # to find what `__getattr__` or a loop binds
            if isinstance(inner, ast.Import | ast.ImportFrom):
                module.mentioned.update(_imported_modules(module, inner))
    return module


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body, including those under `if`, `try` and `with`: any branch may run."""
    for node in body:
        if isinstance(node, ast.If | ast.Try | ast.With):
            yield from _statements(node.body)
            if isinstance(node, ast.Try):
                for handler in node.handlers:
                    yield from _statements(handler.body)
            yield from _statements(getattr(node, "orelse", []) + getattr(node, "finalbody", []))
        else:
            yield node


def _list(module: Module, value: ast.expr, constants: dict[str, ast.expr]) -> None:
    """Add the names in an expression to a module's `__all__`."""
    if module.listed is None:
        module.listed = []
    match value:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            for element in elements:
                if isinstance(element, ast.Starred):
                    _list(module, element.value, constants)
                else:
                    _list(module, element, constants)
        case ast.Constant(value=str(name)):
            module.listed.append(name)
        case ast.BinOp(left=left, op=ast.Add() | ast.BitOr(), right=right):
            _list(module, left, constants)
            _list(module, right, constants)
        case ast.Call(args=[*arguments]) if arguments:  # sorted(…), or a function that lists names
            for argument in arguments:
                _list(module, argument, constants)
        case ast.Name(id=name) if name in constants:
            _list(module, constants.pop(name), constants)
        case ast.Attribute(attr="__all__") | ast.Name() if ref := _reference(value):
            module.listed.append(ref)
        case _:
            module.listed_in_part = True


def _import(module: Module, node: ast.Import | ast.ImportFrom) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            module.bind(alias.asname or top, Ref((), alias.name if alias.asname else top))
        return
    source = _source(module, node)
    for alias in node.names:
        if alias.name == "*":
            module.stars.append(source)
        elif alias.name == "__all__":
            module.listed = [*(module.listed or []), Ref(("__all__",), source)]
        else:
            module.bind(alias.asname or alias.name, Ref((alias.name,), source))


def _imported_modules(module: Module, node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [_source(module, node)]


def _source(module: Module, node: ast.ImportFrom) -> str:
    """The absolute name of the module that ``from … import`` takes names from."""
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    kept = len(parts) - node.level + module.package
    return ".".join(parts[: max(kept, 0)] + ([node.module] if node.module else []))


def _reference(value: ast.expr) -> Ref | None:
    """``a.b.c`` or ``a.b.C(…)`` as a reference; None for any other expression."""
    called = isinstance(value, ast.Call)
    if isinstance(value, ast.Call):
        value = value.func
    path: list[str] = []
    while isinstance(value, ast.Attribute):
        path.append(value.attr)
        value = value.value
    return Ref((value.id, *reversed(path)), called=called) if isinstance(value, ast.Name) else None


def _class(node: ast.ClassDef, home: str) -> Thing:
    thing = Thing(node.name, "class", ast.get_docstring(node) or "", home=home)
    thing.bases = tuple(ref for base in node.bases if (ref := _reference(_unsubscripted(base))))
    for inner in _statements(node.body):
        member: Thing | None = None
        match inner:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                member = _function(inner, home, method=True)
                if member and inner.name in ("__init__", "__new__"):
                    thing.signature = thing.signature or member.signature
                    thing.doc = thing.doc or member.doc  # a class without a docstring takes that of __init__
            case ast.ClassDef():
                member = _class(inner, home)
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="property"), keywords=keywords)
            ):
                doc = next((k.value for k in keywords if k.arg == "doc"), None)
                if isinstance(doc, ast.Constant) and isinstance(doc.value, str):
                    member = Thing(name, "property", doc.value, home=home)
        if member and not (member.name in thing.members and thing.members[member.name].doc):
            thing.members[member.name] = member
    return thing


def _unsubscripted(base: ast.expr) -> ast.expr:
    return base.value if isinstance(base, ast.Subscript) else base  # Generic[T] → Generic


def _function(node: Function, home: str, method: bool) -> Thing | None:
    """A function or property; None for an overload and for a property's setter or deleter."""
    decorators = {name for decorator in node.decorator_list if (name := _last_name(decorator))}
    if decorators & {"overload", "setter", "deleter"}:
        return None
    if any(name.endswith("property") for name in decorators):
        return Thing(node.name, "property", ast.get_docstring(node) or "", home=home)
    bound = method and "staticmethod" not in decorators
    doc, signature = ast.get_docstring(node) or "", ""
    if doc or not method or node.name in ("__init__", "__new__"):  # no other is shown: save the time
        signature = _signature(node.args, bound)
    return Thing(node.name, "function", doc, signature, home, doc_of=_wrapped(node))


def _wrapped(node: Function) -> Ref | None:
    """The function whose docstring ``@wraps(original)`` copies."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and _last_name(decorator).endswith("wraps") and decorator.args:
            return _reference(decorator.args[0])
    return None


def _last_name(decorator: ast.expr) -> str:
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    return decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")


def _signature(arguments: ast.arguments, bound: bool) -> str:
    """The arguments as users write them: without annotations and without `self` or `cls`."""
    positional = arguments.posonlyargs or arguments.args
    if positional and (bound or positional[0].arg in ("self", "cls")):
        count = len(arguments.posonlyargs) + len(arguments.args)
        if len(arguments.defaults) == count:
            arguments.defaults = arguments.defaults[1:]
        del positional[0]
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    for argument in [*every, arguments.vararg, arguments.kwarg]:
        if argument:
            argument.annotation = None
    return f"({ast.unparse(arguments)})"
