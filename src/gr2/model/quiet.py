"""Around the loading of a checkpoint: what transformers says that is no news to the user stays unsaid.

Left out are its bar of loaded weights, and two warnings about what our loaders handle themselves: an output
layer that is not tied to the embeddings (`backbone.py` reads it from the file), and stored weights that the
loaded part does not have, such as a head or a pooler. A report of any other weight is printed as before.
"""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

UNTIED = "The tied weights mapping and config for this model specifies to tie shared.weight to lm_head.weight"
SPEAKER = "transformers.modeling_utils"
REPORT = "LOAD REPORT"
STATUS = re.compile(r"^(\S+)\s*\|[^|A-Z]*(MISSING|MISMATCH|CONVERSION|UNEXPECTED)", re.MULTILINE)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what is no news from the screen; warnings and bars are as before afterwards."""
    settings: Any = import_module("transformers.utils.logging")
    speaker = logging.getLogger(SPEAKER)
    before = settings.set_tqdm_hook(_without_bar)
    speaker.addFilter(is_news)
    try:
        yield
    finally:
        speaker.removeFilter(is_news)
        settings.set_tqdm_hook(before)


def is_news(record: logging.LogRecord) -> bool:
    """Whether a message of transformers says what our loaders do not handle."""
    message = record.getMessage()
    if message.startswith(UNTIED):
        return False
    if REPORT not in message:
        return True
    rows = STATUS.findall(message)
    return not rows or any(status != "UNEXPECTED" and not key.startswith("pooler.") for key, status in rows)


def _without_bar(factory: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return factory(*given, **{**named, "disable": True})
