"""All retrieval systems, behind one protocol: `search(queries, k) -> Run`.

Importing the package fills the registry; it imports nothing heavy.
"""

from gr2.systems import rows as _rows
from gr2.systems.registry import SYSTEMS, System, SystemContext, build_system, register_system

__all__ = ["SYSTEMS", "System", "SystemContext", "build_system", "register_system"]
del _rows
