"""Standard input → what the user wants, one word at a time: single keys on a terminal, lines otherwise."""

import sys
from collections.abc import Iterator


def typed_words(*, single_keys: bool = True) -> Iterator[str]:
    """Yield keys as they are pressed on a terminal; else, or without single keys, lines that are not blank.

    The terminal is as before whenever the caller works, so a crash or Ctrl-C leaves no silent terminal.
    """
    if single_keys and sys.stdin.isatty():
        while key := _key():
            if key.isprintable() and key != " ":
                yield key
    else:
        for line in iter(sys.stdin.readline, ""):
            if line.strip():
                yield line.strip()


def _key() -> str:
    """One key, without Enter; empty at the end of the input (Ctrl-D)."""
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin, termios.TCSANOW)  # by default keys typed meanwhile are thrown away
        key = sys.stdin.read(1)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
    return "" if key == "\x04" else key
