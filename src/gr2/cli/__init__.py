"""The command `gr2`: what a user types → the functions of the other files, and their results → the screen.

Nothing is computed here. Whatever is heavy is imported inside the command that needs it, so `gr2 --help` is
quick.
"""

import os
import sys
from importlib.metadata import version

from gr2.cli import collections, docids, models, pretraining, serving, systems
from gr2.cli.app import app

__all__ = ["collections", "docids", "main", "models", "pretraining", "serving", "systems"]


def main() -> None:
    """Run the command line; a mistake in the input is one sentence on the screen and exit code 1."""
    if sys.argv[1:] == ["--version"]:
        print(f"gr2 {version('gr2')}")
        return
    try:
        app.cli(prog="gr2", description="Generative retrieval with multi-graded relevance.")
        sys.stdout.flush()
    except BrokenPipeError:  # somebody has read enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except (ValueError, OSError) as error:
        sys.exit(f"gr2: {error}")
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
