"""The machine and the versions that every benchmark result is saved with."""

import os
import platform
import resource
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def facts(*packages: str) -> dict[str, Any]:
    """The processor, its cores, and the versions of Python and of these packages."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in packages},
    }


def peak_mb() -> float:
    """Peak resident memory of this process in MB.

    On Linux from /proc, because getrusage counts from the peak of the parent process.
    """
    status = Path("/proc/self/status")
    if not status.is_file():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 1024


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
