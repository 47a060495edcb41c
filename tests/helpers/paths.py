"""Where the project is, and where real data would be."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("GR2_DATA", ROOT.parent / "shared" / "data"))
"""Real collections, if there are any: $GR2_DATA, else `../shared/data` beside the checkout."""
