"""The command `gr2`: parses what the user types, calls the other packages, and prints their results.

Whatever is heavy is imported inside the command that needs it, so `gr2 --help` is quick.
"""

import os
import sys
from importlib.metadata import version

from gr2.cli import collections, docids, judgements, models, pretraining, serving, systems
from gr2.cli.app import app
from gr2.cli.arguments import load_plugins, take_options

DESCRIPTION = (
    "Generative retrieval with multi-graded relevance. Options before or after a command: --plugin FILE.py "
    "imports a file of yours that registers docid schemes, variants or systems; --preset default, fast or "
    "paper sets the defaults of docids, train, index and run gr2."
)
PRESET_COMMANDS = ("docids", "train", "index", "run")
__all__ = ["collections", "docids", "judgements", "main", "models", "pretraining", "serving", "systems"]


def main() -> None:
    """Run the command line; an input error is one sentence on the screen and exit code 1."""
    if sys.argv[1:] == ["--version"]:
        print(f"gr2 {version('gr2')}")
        return
    try:
        plugins, arguments = take_options("--plugin", sys.argv[1:])
        load_plugins(plugins)
        preset, arguments = take_options("--preset", arguments)
        if preset and (not arguments or arguments[0] not in PRESET_COMMANDS):
            raise ValueError(
                f"--preset sets the defaults of {', '.join(PRESET_COMMANDS)} and of no other command"
            )
        docids.register(*preset[-1:])
        models.register(*preset[-1:])
        systems.register(*preset[-1:])
        arguments = systems.with_model_folder(arguments)
        app.cli(prog="gr2", description=DESCRIPTION, args=arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has stopped, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except MemoryError:
        sys.exit("gr2: the memory of this machine does not suffice")
    except (ValueError, OSError, RuntimeError) as error:
        sys.exit(f"gr2: {error}")
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; long jobs continue with --resume\n")
        sys.exit(130)
