"""What every benchmark result says about where it was measured."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def facts(*packages: str) -> dict[str, Any]:
    """The processor, its cores, and the versions of Python and of the packages that matter to a result."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in packages},
    }


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
