"""Valid files → broken ones: of hypothesis, which makes a failing one small, or drawn quickly from a seed."""

import random
from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

PIECES = [
    b"\n",
    b"\r\n",
    b"\t",
    b" ",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\xc2\x85",
    b"\xe2\x80\xa8",
    b'"',
    b"\\",
]
PIECES += [b"{", b"}", b"[", b"]", b"<top>", b"</top>", b"<TOP>", b"<num>", b"<title>", b"</title>", b"null"]
PIECES += [
    b"-1",
    b"1e999",
    b"nan",
    b"0x1",
    b"99999999999999999999",
    b"\xf0\x9f\x90\x88",
    b"score",
    b"_id",
    b"text",
]
PIECES += [
    b"d1",
    b"d2",
    b"q1",
    b"q2",
    b"3",
    b"Q0",
    b'{"_id": "d9", "text": "x"}',
    b"q1\td1\t1",
    b"\\ud800",
    b"1_0",
    b"9" * 4400,
    b"--1",
    b"<page/>",
    b"[[",
    b"{{",
    b"]]",
    b"}}",
]


def mutate(data, steps):
    for kind, place, amount in steps:
        at = place % (len(data) + 1)
        if kind == "flip" and data:
            at %= len(data)
            data = data[:at] + bytes([data[at] ^ (1 << amount % 8)]) + data[at + 1 :]
        elif kind == "delete":
            data = data[:at] + data[at + 1 + amount % 12 :]
        elif kind == "insert":
            data = data[:at] + PIECES[amount % len(PIECES)] + data[at:]
        elif kind == "repeat":
            data = data[:at] + data[at : at + 1 + amount] * 2 + data[at + 1 + amount :]
        elif kind == "truncate":
            data = data[:at]
        else:
            lines = data.split(b"\n")
            one, two = place % len(lines), amount % len(lines)
            if kind == "swap":
                lines[one], lines[two] = lines[two], lines[one]
            elif kind == "double":
                lines.insert(two, lines[one])
            else:  # join
                lines[one : one + 2] = [b" ".join(lines[one : one + 2])]
            data = b"\n".join(lines)
    return data


KINDS = ["flip", "delete", "insert", "repeat", "truncate", "swap", "double", "join"]
STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 4000), st.integers(0, 255)), min_size=1, max_size=4
)
SOUP = st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join)


def broken(*samples):
    """Bytes that were a valid file once, a soup of what such files are made of, or anything."""
    mutated = st.builds(mutate, st.sampled_from(samples), STEPS)
    return st.one_of(mutated, mutated, mutated, SOUP, st.binary(max_size=80))


def mutants(samples: Sequence[bytes], seed: object, count: int) -> Iterator[bytes]:
    """Broken files, always the same for a seed: up to four changes of a valid one, or a soup of pieces."""
    draw = random.Random(repr(seed))
    for _ in range(count):
        if draw.random() < 0.1:
            yield b"".join(draw.choices(PIECES, k=draw.randrange(12)))
            continue
        data = draw.choice(samples)
        where = max(4000, len(data))
        steps = [
            (draw.choice(KINDS), draw.randrange(where), draw.randrange(256))
            for _ in range(draw.randint(1, 4))
        ]
        yield mutate(data, steps)
