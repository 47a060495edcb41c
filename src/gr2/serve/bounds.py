"""A request's body, before it is parsed → whether it has too many values.

Parsing a megabyte of brackets takes over 100 ms, and validating half a million items takes seconds, in the
event loop that every client shares. Counting stops at the limit, so a hostile body costs less than a query.
"""

import re
from itertools import islice

VALUES = 2_000
"""Maximum values of a body; the largest valid search has a few more than `DOCNOS` + `QUERIES`."""
# A string is one token, whatever it contains; other values follow a comma, a colon or a bracket.
# An open string extends to the end and nothing is tried twice, so the time is linear.
TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[,:\[{]', re.DOTALL)


def too_many_values(body: bytes) -> bool:
    """Whether a JSON text has more values than any valid request.

    >>> too_many_values(b'{"query": ["a, b", "c"]}'), too_many_values(b"[" * 5000)
    (False, True)
    """
    return next(islice(TOKEN.finditer(body), 2 * VALUES, None), None) is not None
