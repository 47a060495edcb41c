"""The folders beside an output folder that keep unfinished work."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Workspace:
    """The folders beside an output folder that keep unfinished work, so that it can be resumed.

    >>> Workspace(Path("shop")).training.name
    'shop.training'
    """

    out: Path

    @property
    def training(self) -> Path:
        """Checkpoints, metrics and cached vectors of a training run."""
        return self.out.with_name(f"{self.out.name}.training")

    @property
    def making(self) -> Path:
        """What the making of docids or of a collection keeps."""
        return self.out.with_name(f"{self.out.name}.making")

    @property
    def versions(self) -> Path:
        """Earlier models of the output folder."""
        return self.out.with_name(f"{self.out.name}.versions")

    @property
    def model(self) -> Path:
        """A model that is trained on the way to the output, such as a backbone."""
        return self.out.with_name(f"{self.out.name}.model")
