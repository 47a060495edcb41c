"""A folder of judgements: `config.json` with the grades, and `judgements.jsonl`, which only ever grows.

A judgement that `append` has returned is on disk: it survives a killed process and a power failure. Several
processes and threads may add at once. Nothing is ever deleted; `undo` adds a line that retracts another.
"""

import json
import zlib
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock

from gr2.data.formats.lines import FormatError
from gr2.judge.judgements import History, Judgement, Key, Source, checked, entry_of, merge, qid_of
from gr2.judge.log import OpenLog, open_log
from gr2.store import write_json

CONFIG, LOG = "config.json", "judgements.jsonl"
KIND = "judgements"


@dataclass(frozen=True, kw_only=True)
class JudgeConfig:
    """The grades of a folder of judgements; fixed when the folder is made."""

    grades: int = 4
    """L, the highest grade; 0 is not relevant."""
    words: tuple[str, ...] = ()
    """A word for each grade from 0 to L; without them the grades are shown as numbers."""

    def __post_init__(self) -> None:
        """Check the values; a ValueError says what is wrong."""
        if type(self.grades) is not int or not 1 <= self.grades <= 100:
            raise ValueError(f"expected a highest grade from 1 to 100, found {self.grades!r}")
        if not all(isinstance(word, str) and word.strip() for word in self.words):
            raise ValueError(f"expected words for the grades, found {self.words!r}")
        if self.words and len(self.words) != self.grades + 1:
            raise ValueError(
                f"expected a word for each grade from 0 to {self.grades}, found {len(self.words)} words"
            )

    def word(self, grade: int) -> str:
        """What to call a grade."""
        return self.words[grade] if self.words else str(grade)


class InvalidJudgement(ValueError):
    """A judgement that cannot be kept."""

    def __init__(self, index: int, message: str) -> None:
        """Say which of the judgements that were given it is, from 0, and what is wrong."""
        super().__init__(message)
        self.index = index


def utc_now() -> datetime:
    """The present time."""
    return datetime.now(UTC)


class JudgementStore:
    """Judgements in a folder.

    >>> from tempfile import mkdtemp
    >>> store = JudgementStore(Path(mkdtemp()) / "fruit", JudgeConfig(grades=3))
    >>> [kept] = store.append([Judgement("sour fruit", "d1", 3, "ann")])
    >>> [kept] = store.append([Judgement("sour  fruit", "d1", 2, "ann")])
    >>> kept.query, store.qrels() == {kept.qid: {"d1": 2}}
    ('sour fruit', True)
    >>> store.undo("ann").grade, store.qrels() == {kept.qid: {"d1": 3}}
    (2, True)
    """

    def __init__(
        self,
        folder: Path,
        config: JudgeConfig | None = None,
        *,
        docnos: Container[str] | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """Open a folder of judgements, and check all of it.

        Args:
            folder: The folder; it is made if it does not exist and `config` is given.
            config: The grades of a new folder; for one that exists it must be the same as that folder's.
            docnos: The documents that may be judged; by default any.
            clock: Gives the time of new judgements.
        """
        self.folder = folder
        self.config = _make(folder, config) if config is not None else read_config(folder)
        self._docnos, self._clock = docnos, clock
        self._history, self._end, self._lock = History(), 0, RLock()
        self.refresh()

    def refresh(self) -> None:
        """Read what other processes have added."""
        with self._lock, open_log(self.folder / LOG) as log:
            self._catch_up(log)

    def _catch_up(self, log: OpenLog) -> None:
        entries, end = log.read(self._end, self._history.lines + 1)
        for entry in entries:
            try:
                self._history.apply(entry)
            except ValueError as error:
                line, self._history, self._end = self._history.lines, History(), 0
                raise FormatError(log.path, line, str(error)) from None
        self._end = end

    def append(self, judgements: Iterable[Judgement]) -> list[Judgement]:
        """Keep judgements, all of them or, if one is invalid, none; returns them with qid and time.

        Raises:
            InvalidJudgement: A grade out of range, an unknown docno, no query, no judge, or a qid that
                belongs to another text. Nothing was written.
        """
        given = list(judgements)
        with self._lock, open_log(self.folder / LOG, write=True) as log:
            self._catch_up(log)
            texts, qids, ready = dict[str, str](), dict[str, str](), list[Judgement]()
            now = self._clock().isoformat()
            for index, judgement in enumerate(given):
                try:
                    ready.append(self._ready(judgement, texts, qids, now))
                except ValueError as error:
                    raise InvalidJudgement(index, str(error)) from None
            log.append([entry_of(judgement) for judgement in ready], self._end)
            self._catch_up(log)
        return ready

    def _ready(
        self, judgement: Judgement, texts: dict[str, str], qids: dict[str, str], now: str
    ) -> Judgement:
        """A judgement as it is written; `texts` and `qids` are the queries that are new with this call."""
        clean = checked(replace(judgement, time=judgement.time or now), self.config.grades)
        if self._docnos is not None and clean.docno not in self._docnos:
            raise ValueError(f"the document {clean.docno!r} is not in the collection")
        known = self._history.qids.get(clean.query) or qids.get(clean.query)
        clean = replace(clean, qid=clean.qid or known or qid_of(clean.query))
        text = self._history.texts.get(clean.qid) or texts.setdefault(clean.qid, clean.query)
        if text != clean.query:
            raise ValueError(f"the qid {clean.qid!r} belongs to the query {text!r}, not to {clean.query!r}")
        qids.setdefault(clean.query, clean.qid)
        return clean

    def undo(self, judge: str) -> Judgement:
        """Retract a judge's latest judgement and return it; a ValueError if there is none left."""
        with self._lock, open_log(self.folder / LOG, write=True) as log:
            self._catch_up(log)
            lines = self._history.by_judge.get(judge.strip())
            if not lines:
                raise ValueError(f"{judge!r} has no judgement to undo")
            retracted = self._history.kept[lines[-1]]
            time = checked(replace(retracted, time=self._clock().isoformat()), self.config.grades).time
            entry = {"retracts": lines[-1], "judge": retracted.judge, "time": time}
            log.append([entry], self._end)
            self._catch_up(log)
        return retracted

    def current(self, source: Source | None = None) -> dict[Key, Judgement]:
        """The latest judgement of each query, document and judge, of one source or of both."""
        with self._lock:
            found = self._history.current()
        return {key: each for key, each in found.items() if source in (None, each.source)}

    def judges(self) -> list[str]:
        """Everyone with a judgement, in order of name."""
        return sorted({judgement.judge for judgement in self.current().values()})

    def qrels(self, judge: str | None = None, source: Source | None = None) -> dict[str, dict[str, int]]:
        """The grades, qid → docno → grade: the median of all judges (see `merge`), or those of one judge."""
        if judge is not None and judge not in self.judges():
            raise ValueError(
                f"no judgement by {judge!r}; the judges are: {', '.join(self.judges()) or 'none'}"
            )
        return merge(self.current(source).values(), judge)

    def queries(self) -> Mapping[str, str]:
        """The texts, qid → text, of every query with a judgement."""
        return {judgement.qid: judgement.query for judgement in self.current().values()}


def read_config(folder: Path) -> JudgeConfig:
    """The grades of a folder; a ValueError if it is no folder of judgements."""
    path = folder / CONFIG
    if not path.is_file() or not (folder / LOG).is_file():
        raise ValueError(f"{folder}: expected a folder of judgements, with {CONFIG} and {LOG}")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict) or values.get("kind") != KIND:
            raise ValueError(f"it lacks the kind {KIND!r}")
        if values.pop("crc32", None) not in (None, _checksum(values)):
            raise ValueError("it was changed since it was written (its checksum differs)")
        del values["kind"]
        return JudgeConfig(**values | {"words": tuple(values.get("words", ()))})
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: expected the settings of a folder of judgements: {error}") from None


def config_of(folder: Path, grades: int | None = None, words: tuple[str, ...] = ()) -> JudgeConfig:
    """The settings of a folder: its own if it has any and no others are asked for; 4 grades by default."""
    if is_filled(folder) and grades is None and not words:
        return read_config(folder)
    if grades is None:
        grades = len(words) - 1 if words else JudgeConfig.grades
    return JudgeConfig(grades=grades, words=words)


def is_filled(folder: Path) -> bool:
    """Whether a folder has anything in it."""
    return folder.exists() and any(folder.iterdir())


def _checksum(values: Mapping[str, object]) -> str:
    """A checksum of settings, whatever the order and layout of their JSON."""
    return f"{zlib.crc32(json.dumps(values, sort_keys=True).encode()):08x}"


def _make(folder: Path, config: JudgeConfig) -> JudgeConfig:
    """Make a folder unless there is one; an existing folder must have the same settings."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if any(name not in (CONFIG, LOG) and not name.startswith(".") for name in names):
        raise ValueError(f"{folder}: has other files; choose another folder for judgements")
    folder.mkdir(parents=True, exist_ok=True)
    with open_log(folder / LOG, write=True) as log:
        if not (folder / CONFIG).exists():
            if log.read(0, 1)[0]:
                raise ValueError(f"{folder / CONFIG}: missing, although there are judgements")
            values = {"kind": KIND, **asdict(config)}
            write_json(folder / CONFIG, values | {"crc32": _checksum(values)})
    found = read_config(folder)
    if found != config:
        raise ValueError(f"{folder / CONFIG}: has {found}, which differs from {config}")
    return found
