"""One judgement, the history of all judgements, and one grade for each query and document.

A query is known by its qid; a qid has one text. A query that comes without a qid is taken for one with the
same text: its judgements count for the first qid that somebody gives to this text, before or after. A later
judgement of the same query and document by the same judge replaces the earlier one, and `undo` brings the
earlier one back. "Later" is the order of the log.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Literal, get_args

from gr2.data.formats.lines import is_key

Source = Literal["judged", "clicks"]
Key = tuple[str, str, str]
"""The qid, docno and judge of a judgement."""


@dataclass(frozen=True)
class Judgement:
    """One grade that one judge gave to one document for one query."""

    query: str
    """The text of the query; runs of white space become one space."""
    docno: str
    grade: int
    """0 not relevant, up to L of the store."""
    judge: str
    qid: str = ""
    """If empty, the store chooses: that of a known query with the same text, else one made from the text."""
    time: str = ""
    """ISO 8601 with a time zone, kept as UTC; if empty, the store sets the present time."""
    source: Source = "judged"
    """`judged` by a person, or derived from `clicks`."""

    @property
    def key(self) -> Key:
        """What a later judgement must share with this one to replace it."""
        return self.qid, self.docno, self.judge


def checked(judgement: Judgement, grades: int) -> Judgement:
    """The judgement with clean white space and UTC time; a ValueError says which field is wrong."""
    query, judge = " ".join(judgement.query.split()), judgement.judge.strip()
    if not query or not _is_text(query):
        raise ValueError(f"expected a query with text, found {judgement.query!r}")
    if not judge or not judge.isprintable():
        raise ValueError(f"expected the name of a judge, found {judgement.judge!r}")
    if not is_key(judgement.docno):
        raise ValueError(f"expected a docno without white space, found {judgement.docno!r}")
    if judgement.qid and not is_key(judgement.qid):
        raise ValueError(f"expected a qid without white space, found {judgement.qid!r}")
    if type(judgement.grade) is not int or not 0 <= judgement.grade <= grades:
        raise ValueError(f"expected a grade from 0 to {grades}, found {judgement.grade!r}")
    if judgement.source not in get_args(Source):
        raise ValueError(f"expected one of the sources {get_args(Source)}, found {judgement.source!r}")
    time = _utc(judgement.time) if judgement.time else ""
    return replace(judgement, query=query, judge=judge, time=time)


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _utc(time: str) -> str:
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        moment = datetime.min
    if moment.tzinfo is None:
        raise ValueError(f"expected a time such as 2026-01-31T12:00:00Z, found {time!r}")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def qid_of(query: str) -> str:
    """The qid of a query that came without one; the same text always gives the same qid.

    >>> qid_of("sour fruit")
    'q-264548765d73'
    """
    return f"q-{blake2b(query.encode('utf-8'), digest_size=6).hexdigest()}"


@dataclass
class History:
    """Every judgement and retraction so far, in the order of the log."""

    texts: dict[str, str] = field(default_factory=dict)
    """qid → text, of every query ever judged."""
    qids: dict[str, str] = field(default_factory=dict)
    """text → its first given qid; until there is one, the qid made from the text."""
    kept: dict[int, Judgement] = field(default_factory=dict)
    """Line → judgement, without those that were undone; in the order of the lines."""
    by_judge: dict[str, list[int]] = field(default_factory=dict)
    """Judge → the lines of `kept`, so that undoing is quick."""
    lines: int = 0

    def apply(self, entry: Mapping[str, Any]) -> None:
        """Add the entry of the next line; anything else than an entry of ours raises a ValueError."""
        self.lines += 1
        try:
            if "retracts" in entry:
                self.by_judge[entry["judge"]].remove(entry["retracts"])
                del self.kept[entry["retracts"]]
                return
            judgement = Judgement(**entry)
            if not judgement.qid or not judgement.time or self.text(judgement) != judgement.query:
                raise ValueError
        except (LookupError, TypeError, ValueError):
            raise ValueError(f"expected a judgement or a retraction, found {dict(entry)}") from None
        self.texts[judgement.qid] = judgement.query
        if self.qids.get(judgement.query) in (None, qid_of(judgement.query)):
            self.qids[judgement.query] = judgement.qid
        self.kept[self.lines] = judgement
        self.by_judge.setdefault(judgement.judge, []).append(self.lines)

    def text(self, judgement: Judgement) -> str:
        """The known text of a judgement's query; its own if the query is new."""
        return self.texts.get(judgement.qid, judgement.query)

    def current(self) -> dict[Key, Judgement]:
        """The latest judgement of each query, document and judge."""
        made = {qid_of(query): qid for query, qid in self.qids.items()}
        found: dict[Key, Judgement] = {}
        for each in self.kept.values():
            qid = made.get(each.qid, each.qid)
            judgement = each if qid == each.qid else replace(each, qid=qid)
            found[judgement.key] = judgement
        return found


def entry_of(judgement: Judgement) -> dict[str, Any]:
    """A judgement as an entry of the log."""
    return asdict(judgement)


def merge(judgements: Iterable[Judgement], judge: str | None = None) -> dict[str, dict[str, int]]:
    """One grade for each query and document: that of one judge, or the median of all judges.

    With an even number of judges it is the lower of the two middle grades, so ties go downward. Clicks count
    only for pairs that nobody judged.

    Args:
        judgements: At most one for each query, document and judge, as `History.current` has them.
        judge: Take this judge's grades alone.

    >>> rows = [Judgement("q", "d", grade, judge, qid="1") for grade, judge in ((3, "ann"), (1, "bob"))]
    >>> merge(rows), merge(rows, "ann")
    ({'1': {'d': 1}}, {'1': {'d': 3}})
    """
    found: dict[str, dict[str, dict[str, list[int]]]] = {}
    for each in judgements:
        if judge is None or each.judge == judge:
            row = found.setdefault(each.qid, {}).setdefault(each.docno, {})
            row.setdefault(each.source, []).append(each.grade)
    return {
        qid: {docno: median(row.get("judged") or row["clicks"]) for docno, row in judged.items()}
        for qid, judged in found.items()
    }


def median(grades: Iterable[int]) -> int:
    """The middle grade; the lower of the two middle ones if there are two.

    >>> median([4, 0, 3]), median([0, 1, 3, 4])
    (3, 1)
    """
    ordered = sorted(grades)
    return ordered[(len(ordered) - 1) // 2]
