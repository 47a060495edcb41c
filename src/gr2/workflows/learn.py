"""A model folder and judgements → the same model, learned anew from them; or left alone if nothing is gained.

No document is encoded again: look-ahead is chosen and learned over the model's own vectors and words, and
only queries are encoded. What the model learned from before is kept in its folder; the new judgements are
merged over it, so learning again never forgets the earlier ones.

The gain is measured on the queries of the new judgements (`training/estimate.py`). Each is ranked by a
look-ahead that learned without it, and compared with the model as it was before. If the model had learned
from some of these queries, it is learned again without them for the comparison, with the same candidate:
else it would know their answers. Its candidate and weights were chosen with these queries, which favours the
model as it was. A folder of an earlier version does not say what it learned from; it is then compared as it
is, which favours it still more.

The model is replaced if the gain is more than its standard error, the rule by which weights are chosen too;
whether the 95 % band lies above 0 as well is said, not required. What is learned has passed the stricter rule
of `training/selection.py` before.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gr2.data.documents import NAME as DOCUMENTS
from gr2.data.documents import DocumentStore
from gr2.judge.judged_queries import JudgedQueries, same_text
from gr2.model.card import FIGURES
from gr2.model.gr2 import GR2
from gr2.model.look_ahead import LookAhead
from gr2.model.query_encoder import QueryEncoder
from gr2.model.vector_storage import FullVectors, stored_as
from gr2.store import MANIFEST, sha256
from gr2.training.candidates import Candidate
from gr2.training.estimate import LEAST, Gain, estimate_gain
from gr2.training.fit_look_ahead import learn_look_ahead, selection_facts
from gr2.training.judged import TrainingSet
from gr2.training.learner import Learner
from gr2.training.plain_views import PlainViews
from gr2.workflows.versions import published

OUTDATED = (FIGURES, "report.html", "report.md")
"""Files of a model folder that describe the model as it was indexed."""

__all__ = ["JudgedQueries", "Learned", "learn"]


@dataclass(frozen=True)
class Learned:
    """What learning from judgements did, and how sure that is."""

    queries: int
    """Judged queries with a relevant document, on which the gain was measured."""
    learned: bool
    """Whether there is a gain, and with it a new model."""
    chosen: str
    """What was learned, and with which weights of words and vectors."""
    seconds: float
    gain: Gain | None
    """nDCG@20 before and after; None if there were too few queries to tell."""
    out: Path | None
    """Where the new model is."""

    @property
    def sentence(self) -> str:
        """All of it in plain words."""
        if self.gain is None:
            return (
                f"No gain yet: the model stays as it is. Judge more: {self.queries} judged queries have a "
                f"relevant document, and at least {LEAST} are needed."
            )
        found, (low, high) = self.gain, map(_short, (self.gain.low, self.gain.high))
        shown = round(found.after, 3) - round(found.before, 3)  # so that the three figures agree
        sure = f"{_short(shown, sign=True)}, 95 % band {low} to {high}, p {_p(found.p)}"
        before, after = _short(found.before), _short(found.after)
        if not self.learned:
            return (
                f"No gain yet: the model stays as it is. On {found.queries} judged queries, nDCG@20 is "
                f"{before} now, and {after} if the model learns from the other queries ({sure})."
            )
        return (
            f"Learned from {self.queries} judged queries in {self.seconds:.0f} s: on queries it did not see, "
            f"nDCG@20 rises from {before} to {after} ({sure})."
            + ("" if found.is_sure else " That is likely but not yet sure; more judgements will tell.")
        )


def learn(
    folder: Path,
    judgements: JudgedQueries,
    out: Path,
    *,
    device: str = "auto",
    progress: Callable[[str], None] = lambda line: None,
) -> Learned:
    """Learn from judgements and publish the model if that gains something; else nothing is written.

    Args:
        folder: the model.
        judgements: graded documents of this model.
        out: where the new model goes; it may be the folder itself, whose present model is then kept.
        device: where queries are encoded.
        progress: called with a line for each step.
    """
    begun, digest = time.monotonic(), _digest(folder)
    if out.is_dir() and any(out.iterdir()) and not (out / "docids").is_dir():
        raise ValueError(f"{out}: holds something else than a model; choose another folder")
    model = GR2.from_pretrained(folder, device=device)
    model.network.eval()
    views = views_of(model, folder)
    judgements.check(set(model.docids.docnos))
    given = judgements.over().relevant()
    if len(given.qrels) < LEAST:
        return Learned(len(given.qrels), False, "nothing", time.monotonic() - begun, None, None)
    pool = judgements.over(model.judged).relevant()
    progress(f"encoding {len(pool.qrels)} queries")
    everything, keys = encoded(pool, model.query_encoder), sorted(pool.keys())
    measured = [row for row, key in enumerate(keys) if key in set(given.keys())]
    before = _Before(model, views, keys)
    gain = estimate_gain(views, everything, measured, before, progress=progress)
    if not gain.is_clear:
        return Learned(len(given.qrels), False, "nothing", time.monotonic() - begun, gain, None)
    progress(f"learning from all {len(pool.qrels)} queries")
    found, selection = learn_look_ahead(views, {"train": everything})
    model.look_ahead, model.judged = _stored_like(found, model.look_ahead), pool
    model.provenance["look_ahead"] = selection_facts(selection)
    model.provenance["learned"] = asdict(gain)
    with published(out, folder) as temporary:
        if _digest(folder) != digest:
            raise ValueError(f"{folder}: another process has changed this model; learn again")
        for name in OUTDATED:
            (temporary / name).unlink(missing_ok=True)
        model.save_learned(temporary)
    chosen = f"{model.provenance['look_ahead']['chosen']}; {model.provenance['look_ahead']['weights']}"
    return Learned(len(given.qrels), True, chosen, time.monotonic() - begun, gain, out)


def views_of(model: GR2, folder: Path) -> PlainViews:
    """The words and vectors of a model, from which its look-ahead learns."""
    known = model.look_ahead
    if known is None:
        raise ValueError(f"{folder}: this model has no look-ahead, so it cannot learn from judgements")
    if known.config.residual:
        raise ValueError(
            f"{folder}: the decoder of this model was trained on top of what look-ahead had learned, so it "
            "cannot learn from judgements; index the collection again with them"
        )
    if not (folder / DOCUMENTS).is_file():
        raise ValueError(f"{folder}: has no {DOCUMENTS}, whose words are needed to learn from judgements")
    store = DocumentStore(folder / DOCUMENTS)
    documents = store.get(model.docids.docnos)
    store.close()
    kind = model.provenance.get("look_ahead", {}).get("vectors", "the model's")
    return PlainViews.of_look_ahead(known, [documents[docno] for docno in known.docnos], kind)


def encoded(judged: JudgedQueries, encoder: QueryEncoder) -> TrainingSet:
    """Judged queries with their vectors, ordered by `same_text` and docno, so not as in any file."""
    rows = sorted(judged.qrels, key=lambda qid: same_text(judged.queries[qid]))
    texts = [judged.queries[qid] for qid in rows]
    return TrainingSet(
        texts, encoder.encode(texts), [dict(sorted(judged.qrels[qid].items())) for qid in rows]
    )


@dataclass(frozen=True)
class _Before:
    """The model as it was, without what it learned from held-out queries."""

    model: GR2
    views: PlainViews
    keys: Sequence[str]
    """The `same_text` of each row."""

    def __call__(self, held: Sequence[int]) -> LookAhead:
        """The look-ahead to compare with on these rows."""
        known, earlier = self.model.look_ahead, self.model.judged
        assert known is not None  # `views_of` has checked it
        learned = known.offsets is not None or known.memory is not None
        hidden = {self.keys[row] for row in held}
        if not learned or earlier is None or hidden.isdisjoint(earlier.keys()):
            return known
        rest = earlier.without(hidden)
        plain = self.views.at(replace(self.views.usual, prior=known.config.prior))
        if not rest.qrels:
            return plain
        candidate = Candidate.from_json(self.model.provenance["look_ahead"]["candidate"])
        return Learner(plain).learn(encoded(rest, self.model.query_encoder), candidate)


def _stored_like(found: LookAhead, known: LookAhead | None) -> LookAhead:
    """Look-ahead with its offsets in 8 bits if the vectors that it was learned over lost bits before."""
    full = known is None or isinstance(known.vectors, FullVectors)
    if found.offsets is None or full:
        return found
    return replace(found, offsets=stored_as(found.offsets, "int8"))


def _digest(folder: Path) -> str:
    if not (folder / MANIFEST).is_file():
        raise ValueError(f"{folder}: expected a model folder, with {MANIFEST}")
    return sha256(folder / MANIFEST)


def _p(value: float) -> str:
    """A p-value: .041, or < .001."""
    return _short(value) if value >= 0.0005 else "< .001"


def _short(value: float, *, sign: bool = False) -> str:
    """A number between −1 and 1 as in tables: .041, or +.041."""
    text = f"{abs(value):.3f}".removeprefix("0")
    return ("−" if value < 0 else "+" if sign else "") + text
