"""Arguments that are read first: `--plugin` adds commands and choices, `--preset` sets defaults."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb


def take_options(name: str, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The values of an option that may be repeated, and the other arguments.

    >>> take_options("--plugin", ["--plugin", "mine.py", "run", "--plugin=b.py"])
    (['mine.py', 'b.py'], ['run'])
    """
    values, others, rest = [], [], list(arguments)
    while rest:
        word = rest.pop(0)
        if word == name:
            if not rest:
                raise ValueError(f"{name} needs a value")
            values.append(rest.pop(0))
        elif word.startswith(f"{name}="):
            values.append(word.partition("=")[2])
        else:
            others.append(word)
    return values, others


def load_plugins(plugins: Sequence[str]) -> None:
    """Import Python files or modules, which register docid schemes, variants and systems."""
    for plugin in plugins:
        if not plugin.endswith(".py"):
            try:
                import_module(plugin)
            except ImportError as error:
                raise ValueError(f"the plugin {plugin} cannot be imported: {error}") from error
            continue
        path = Path(plugin)
        if not path.is_file():
            raise ValueError(f"{plugin}: there is no such plugin file")
        spec = spec_from_file_location(f"gr2_plugin_{path.stem}", path)
        if spec is None or spec.loader is None:
            raise ValueError(f"{plugin}: cannot be read as a Python file")
        module = module_from_spec(spec)
        sys.modules[module.__name__] = module  # dataclasses and tyro look their module up
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            line = _line_of(error, path)
            raise ValueError(f"the plugin {plugin}{line} failed: {type(error).__name__}: {error}") from error


def _line_of(error: Exception, path: Path) -> str:
    """The line of a file in which an error happened, as `:LINE`."""
    if isinstance(error, SyntaxError):
        return f":{error.lineno}"
    own = [frame for frame in extract_tb(error.__traceback__) if Path(frame.filename) == path]
    return f":{own[-1].lineno}" if own else ""
