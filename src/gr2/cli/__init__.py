"""The command `gr2`: parses what the user types, calls the other packages, and prints their results.

Whatever is heavy is imported inside the command that needs it, so `gr2 --help` is quick.
"""

import os
import sys

from gr2.cli import (
    cards,
    collections,
    docids,
    exporting,
    generators,
    judgements,
    judging,
    learning,
    models,
    pretraining,
    searching,
    serving,
    systems,
)
from gr2.cli.app import app
from gr2.cli.arguments import load_plugins, take_options
from gr2.cli.version import describe
from gr2.workflows.config import pretrain_preset

DESCRIPTION = (
    "Search that learns from graded judgements.\n\n"
    "A first use: gr2 collection import (your files become a collection), gr2 index (a collection becomes a "
    "model), gr2 search and gr2 serve; then gr2 judge or gr2 judgements from-clicks, and gr2 learn.\n\n"
    "Options of every command: --plugin FILE.py imports a file of yours that adds docid schemes, variants or "
    "systems; --preset default, fast, residual, decoder or paper sets the defaults of docids, train, index, "
    "pretrain, run gr2 and cross-validate; --help-all lists all settings where --help shows the main options."
)
HELP_ALL = "--help-all"
"""Lists the settings of docids, training and search too, where `--help` leaves them out."""
PRESET_COMMANDS = ("docids", "train", "index", "pretrain", "run", "cross-validate")
__all__ = [
    "cards",
    "collections",
    "docids",
    "exporting",
    "generators",
    "judgements",
    "judging",
    "learning",
    "main",
    "models",
    "pretraining",
    "searching",
    "serving",
    "systems",
]


def main() -> None:
    """Run the command line; an input error is one sentence on the screen and exit code 1."""
    if sys.argv[1:] == ["--version"]:
        print(describe())
        return
    try:
        plugins, arguments = take_options("--plugin", sys.argv[1:])
        load_plugins(plugins)
        preset, arguments = take_options("--preset", arguments)
        if preset and (not arguments or arguments[0] not in PRESET_COMMANDS):
            raise ValueError(
                f"--preset sets the defaults of {', '.join(PRESET_COMMANDS)} and of no other command"
            )
        if arguments[:1] == ["pretrain"]:
            pretrain_preset(preset[-1] if preset else models.PRESET)  # refuses those it does not have
        brief = HELP_ALL not in arguments and ("--help" in arguments or "-h" in arguments)
        arguments = ["--help" if word == HELP_ALL else word for word in arguments]
        docids.register(*preset[-1:])
        models.register(*preset[-1:], brief=brief)
        systems.register(*preset[-1:], brief=brief)
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
