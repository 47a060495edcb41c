"""Parsed modules → the public name of each documented object: the shortest name to import it by.

A module is public if no part of its name begins with an underscore. A module exports a name if

- the module defines it, or
- its `__all__` lists it, wherever it comes from: imported, or bound at run time (then it is looked up in the
  module's own submodules and in the private modules that it imports), or
- the `__all__` of its own submodule lists it and the module has ``from submodule import *``, or
- there is no `__all__` (or one that is only known at run time) and the name comes from a private module or
  from the module's own submodule. So ``contextlib.wraps`` is not a public name; ``functools.wraps`` is.

Of several names the best keeps the object's own name, then has the fewest dots, then the fewest letters, then
comes first in the alphabet. What a public class inherits from a private base counts as its own; any other
inherited method belongs to the class that defines it. If two objects claim one name (a C accelerator and its
Python twin), the one with Python source gets it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from gr2.data.pydocs.source import Module, Ref, Thing

INTERNAL = frozenset(
    "genericpath nt ntpath posix posixpath multiprocessing.context multiprocessing.process".split()
)
"""Modules of the standard library that are private although their names do not say so."""


class Claim(NamedTuple):
    """A possible name of an object. The smallest of its claims becomes its name."""

    loose: bool
    """Importable but not exported: not in `__all__`, or from another private module; or a member of a class
    that is known by an alias."""
    level: int
    """Number of private bases between the class in the name and the class that defines the object."""
    alias: bool
    """Not the object's own name."""
    dots: int
    letters: int
    docno: str
    module: str
    owner: str
    """The class that it is a member of; empty for a member of a module."""


class Named(NamedTuple):
    """A documented object under its public name."""

    docno: str
    signature: str
    doc: str
    module: str
    owner: str
    compiled: bool


class Names:
    """Resolves the public names of a set of modules."""

    def __init__(self, modules: Iterable[Module], compiled: Callable[[str], Module | None]) -> None:
        """Take parsed modules, and a function that reads a C module when a name leads to one."""
        self._modules: dict[str, Module | None] = {module.name: module for module in modules}
        self._compiled = compiled
        self._exports: dict[str, Mapping[str, list[Thing | Module]]] = {}
        self._loose: set[tuple[str, str]] = set()
        self._children: dict[str, list[str]] = {}
        for name in self._modules:
            self._children.setdefault(name.rpartition(".")[0], []).append(name)

    def module(self, name: str) -> Module | None:
        """A module by its full name; None if it does not exist or is not to be read."""
        if name not in self._modules:
            self._modules[name] = self._compiled(name)
        return self._modules[name]

    def documented(self) -> list[Named]:
        """Every documented object with a public name, by docno."""
        known = self._public_modules()
        claims: dict[Thing, list[Claim]] = {}
        for name, module in known.items():
            for key, found in self.exports(module).items():
                docno = f"{name}.{key}".removeprefix("builtins.")
                for thing in found:
                    if isinstance(thing, Thing):
                        loose = (module.name, key) in self._loose
                        claims.setdefault(thing, []).append(_claim(thing, docno, name, loose=loose))
        rows = [
            Named(name, "", self._module_doc(module), name, "", module.compiled)
            for name, module in known.items()
        ]
        rows += self._objects({thing: min(names) for thing, names in claims.items()})
        unique: dict[str, Named] = {}
        for row in sorted(rows, key=lambda row: (row.docno, row.compiled)):
            if row.doc.strip():
                unique.setdefault(row.docno, row)
        return list(unique.values())

    def _module_doc(self, module: Module) -> str:
        taken = module.bound.get("__doc__", [])  # from _struct import __doc__
        others = [self.module(ref.module) for ref in taken if isinstance(ref, Ref)]
        return module.doc or next((other.doc for other in others if other), "")

    def _public_modules(self) -> dict[str, Module]:
        """Public name → module. A private module is public if a public one exports it: os.path."""
        known = {name: module for name, module in self._modules.items() if module and not is_private(name)}
        pending = list(known.items())
        named = {id(module) for module in known.values()}
        for name, module in pending:  # the list grows during the loop
            for key, found in self.exports(module).items():
                for inner in found:
                    alias = f"{name}.{key}"
                    taken = id(inner) in named or alias in known or (module.name, key) in self._loose
                    if isinstance(inner, Module) and not taken:
                        named.add(id(inner))
                        known[alias] = inner
                        pending.append((alias, inner))
        return known

    def _objects(self, chosen: dict[Thing, Claim]) -> Iterator[Named]:
        """Each object under its chosen name, and the members of each class under their best names."""
        pending = dict(chosen)
        while pending:  # the next round names the members of this round's classes
            members: dict[Thing, list[Claim]] = {}
            for thing, claim in pending.items():
                doc, signature = thing.doc or self._doc_of(thing), thing.signature
                loose = claim.loose or claim.alias
                for level, ancestor in enumerate(self._ancestors(thing)):
                    signature = signature or ancestor.signature
                    if level and ancestor in chosen and not chosen[ancestor].alias:
                        continue
                    doc = doc or ("" if ancestor in chosen else ancestor.doc)
                    for key, member in ancestor.members.items():
                        if not key.startswith("_") and member not in chosen:
                            name, owner = f"{claim.docno}.{key}", claim.docno
                            other = _claim(member, name, claim.module, owner, loose, level)
                            members.setdefault(member, []).append(other)
                yield Named(claim.docno, signature, doc, claim.module, claim.owner, thing.compiled)
            pending = {member: min(claims) for member, claims in members.items()}
            chosen |= pending

    def _doc_of(self, thing: Thing) -> str:
        home = self.module(thing.home)
        found = self._resolve(home, thing.doc_of, frozenset()) if home and thing.doc_of else []
        return next((other.doc for other in found if other.doc), "")

    def exports(self, module: Module) -> Mapping[str, list[Thing | Module]]:
        """The public names of a module, each with the objects it may refer to."""
        if module.name in self._exports:
            return self._exports[module.name]
        listed = self._listed(module)
        closed = module.listed is not None and not module.listed_in_part
        exports: dict[str, list[Thing | Module]] = {}
        starred = {name for star in module.stars for name in self._star_names(self.module(star))}
        inner = [self.module(star) for star in module.stars if _is_below(star, module)]
        published = {name for other in inner if other for name in self._listed(other)}
        for name in sorted({*module.bound, *starred, *listed}):
            if name.startswith("_"):
                continue
            if name in listed or name in published:
                found = self._lookup(module, name) or self._lazy(module, name)
            else:
                origins = set(self._origins(module, name))
                own = any(origin == module.name or _is_below(origin, module) for origin in origins)
                if not (module.name in origins if closed else own or any(map(is_private, origins))):
                    continue
                found = self._lookup(module, name)
                if closed or not own:
                    self._loose.add((module.name, name))
            exports[name] = [self._unbound(module, name, thing) for thing in found]
        self._exports[module.name] = exports
        return exports

    def _origins(self, module: Module, name: str) -> Iterator[str]:
        """The modules that a name comes from, one for each of its bindings."""
        for value in module.bound.get(name, ()):
            heads = [value]
            if isinstance(value, Ref) and not value.module:
                heads = module.bound.get(value.path[0], [])
            for head in heads:
                yield module.name if isinstance(head, Thing) else head.module or module.name
        if name not in module.bound:
            yield from (star for star in module.stars if name in self._star_names(self.module(star)))

    def _unbound(self, module: Module, name: str, found: Thing | Module) -> Thing | Module:
        """A bound method exported under another name or by another module is a function: secrets.choice."""
        for value in module.bound.get(name, ()):
            if (
                isinstance(found, Thing)
                and isinstance(value, Ref)
                and not value.module
                and len(value.path) == 2
            ):
                heads = module.bound.get(value.path[0], [])
                elsewhere = found.home != module.name or found.name != name
                if elsewhere and any(isinstance(head, Ref) and head.called for head in heads):
                    return replace(found, name=name)
        return found

    def _listed(self, module: Module, seen: frozenset[str] = frozenset()) -> set[str]:
        """The names in `__all__`, including those it takes from the `__all__` of other modules."""
        names: set[str] = set()
        for part in module.listed or ():
            if isinstance(part, str):
                names.add(part)
                continue
            whole = part.path[-1] != "__all__"
            path = part.path if whole else part.path[:-1]
            for other in self._resolve(module, replace(part, path=path), frozenset()):
                if isinstance(other, Module) and other.name not in seen:
                    below = self._star_names if whole else self._listed
                    names |= below(other, seen | {module.name})
        return names

    def _star_names(self, module: Module | None, seen: frozenset[str] = frozenset()) -> set[str]:
        """The names that ``from module import *`` binds."""
        if module is None or module.name in seen:
            return set()
        if module.listed is not None and not module.listed_in_part:
            return self._listed(module, seen)
        seen |= {module.name}
        inner = {n for star in module.stars for n in self._star_names(self.module(star), seen)}
        return {n for n in {*module.bound, *inner} if not n.startswith("_")} | self._listed(module, seen)

    def _lazy(self, module: Module, name: str) -> list[Thing | Module]:
        """Objects bound at run time: by `__getattr__`, from a submodule, or in a loop over C functions."""
        places = [*self._children.get(module.name, ()), *sorted(filter(is_private, module.mentioned))]
        for place in places:
            other = self.module(place)
            if other and (things := [t for t in other.bound.get(name, ()) if isinstance(t, Thing)]):
                return [*things]
        return []

    def _lookup(
        self, module: Module, name: str, seen: frozenset[tuple[str, str]] = frozenset()
    ) -> list[Thing | Module]:
        """The objects that a name of a module may refer to."""
        if (module.name, name) in seen:
            return []
        seen |= {(module.name, name)}
        found: list[Thing | Module] = []
        for value in module.bound.get(name, ()):
            found += [value] if isinstance(value, Thing) else self._resolve(module, value, seen)
        bound = bool(found)
        for star in module.stars:
            other = self.module(star)
            # even if the name is bound: a C accelerator may have a docstring that its twin lacks
            if other and (other.compiled or not bound):
                if name in self._star_names(other):
                    found += self._lookup(other, name, seen)
        if not found and (submodule := self.module(f"{module.name}.{name}")):
            found = [submodule]
        return list(dict.fromkeys(found))

    def _resolve(self, module: Module, ref: Ref, seen: frozenset[tuple[str, str]]) -> list[Thing | Module]:
        """The objects that a reference in a module may refer to."""
        start = self.module(ref.module) if ref.module else module
        found: list[Thing | Module] = [start] if start else []
        for attribute in ref.path:
            found = [
                inner
                for outer in found
                for inner in (
                    self._lookup(outer, attribute, seen)
                    if isinstance(outer, Module)
                    else [a.members[attribute] for a in self._ancestors(outer) if attribute in a.members][:1]
                )
            ]
        return found

    def _ancestors(self, thing: Thing, seen: frozenset[Thing] = frozenset()) -> list[Thing]:
        """A class and the classes that it inherits from, depth first."""
        found = [thing]
        home = self.module(thing.home)
        for base in thing.bases:
            things = (
                [base] if isinstance(base, Thing) else self._resolve(home, base, frozenset()) if home else []
            )
            for other in things[:1]:
                if isinstance(other, Thing) and other not in seen and other is not thing:
                    found += self._ancestors(other, seen | {thing})
        return list(dict.fromkeys(found))


def is_private(module: str) -> bool:
    """Whether users are not meant to import a module by its own name."""
    return module in INTERNAL or any(part.startswith("_") for part in module.split("."))


def _is_below(name: str, module: Module) -> bool:
    return name.startswith(f"{module.name}.")


def _claim(
    thing: Thing, docno: str, module: str, owner: str = "", loose: bool = False, level: int = 0
) -> Claim:
    alias = docno.rpartition(".")[2] != thing.name
    return Claim(loose, level, alias, docno.count("."), len(docno), docno, module, owner)
