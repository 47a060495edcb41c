"""Changed files and their tests → which changes the tests notice.

The source is copied once; for each change one file of the copy is replaced, the tests run in a child process
whose `gr2` is the copy, and the file is put back. A child is a fork of this process, which has imported every
module that the tests need but those of `gr2` and of the tests: that saves most of the time.
"""

import contextlib
import importlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
OWN = ("gr2", "helpers", "mutants", "conftest", "test_", "tests", "__main__")
"""What the names of modules begin with that a child must import itself."""
TIMEOUT = 300
"""Seconds of CPU time after which tests count as failed: a change may make them run forever."""


class Copy:
    """A copy of the source in which files can be changed."""

    def __init__(self, folder: Path) -> None:
        """Copy the source with its compiled files, which stay valid for all files that are not changed."""
        self.source, self.modules = folder / "src", folder / "modules.json"
        shutil.copytree(ROOT / "src", self.source)

    def prepare(self) -> None:
        """Import what the tests that were run first have imported."""
        for name in json.loads(self.modules.read_text(encoding="utf-8")):
            with contextlib.suppress(ImportError):  # some modules are made by others and have no file
                importlib.import_module(name)
        assert not any(name == "gr2" or name.startswith("gr2.") for name in sys.modules)

    @contextlib.contextmanager
    def changed(self, file: str, text: str) -> Iterator[None]:
        """One file of `gr2` has another text while this lasts."""
        path = self.source / "gr2" / file
        before, times = path.read_text(encoding="utf-8"), path.stat()
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()
        path.write_text(text, encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(before, encoding="utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def run_until_one_fails(self, stages: Sequence[Sequence[str]], log: Path) -> tuple[bool, float]:
        """Run some tests, then others unless one has failed: whether one has, and the seconds of CPU time."""
        spent = 0.0
        for tests in stages:
            failed, seconds = self.run(tests, log)
            spent += seconds
            if failed:
                return True, spent
        return False, spent

    def run(self, tests: Sequence[str], log: Path) -> tuple[bool, float]:
        """Run tests, named by their paths below tests/, until one fails; what they print goes to the log."""
        child = os.fork()
        if child == 0:
            os._exit(self._child(tests, log))
        _, status, usage = os.wait4(child, 0)
        failed = os.waitstatus_to_exitcode(status) != 0  # a file that cannot be imported is noticed too
        return failed, usage.ru_utime + usage.ru_stime

    def _child(self, tests: Sequence[str], log: Path) -> int:
        """Run pytest with `gr2` of the copy; the exit code."""
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (TIMEOUT, TIMEOUT))
        stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(stream, 1)
        os.dup2(stream, 2)
        os.chdir(ROOT)
        sys.dont_write_bytecode = True
        os.environ |= {"PYTHONPATH": str(self.source), "PYTHONDONTWRITEBYTECODE": "1"}
        sys.path[:] = [str(self.source), *(p for p in sys.path if Path(p or ".").resolve() != ROOT / "src")]
        importlib.invalidate_caches()
        import pytest

        paths = [str(ROOT / "tests" / name) for name in tests]
        try:
            return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *paths]))
        except BaseException:
            return 1
        finally:
            sys.stdout.flush()
            if not self.modules.exists():
                names = [name for name in sys.modules if not name.startswith(OWN)]
                self.modules.write_text(json.dumps(names), encoding="utf-8")
