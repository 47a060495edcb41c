"""A collection → a text with the facts to know before trusting any figure measured on it."""

from collections import Counter

from gr2.data.collection import Collection, Qrels
from gr2.evaluate.leaks import NEAR_TWIN, Leaks, seen_and_unseen
from gr2.evaluate.measures import Convention
from gr2.evaluate.tables import render

CONTROL_MEASURES = ("nDCG@20", "P@20", "ERR@20", "Hits@1", "Hits@10")


def headline(collection: Collection) -> str:
    """The first line of every output: name, sizes, grades, fingerprint."""
    none = "nothing judged relevant" if any(collection.qrels.values()) else "no judgements"
    kinds = {0: none, 1: "binary judgements"}
    grades = kinds.get(collection.grades, f"grades 1-{collection.grades}")
    return (
        f"{collection.name}: {len(collection.docnos):,} documents, {len(collection.queries):,} queries, "
        f"{grades}, fingerprint {collection.fingerprint[:12]}"
    )


def describe(collection: Collection) -> str:
    """Sizes, grades per split, and what the train split gives away about each other split."""
    parts = [headline(collection), _documents(collection), _splits(collection)]
    if collection.folds:
        sizes = ", ".join(str(len(fold)) for fold in collection.folds)
        parts.append(f"{len(collection.folds)} folds of {sizes} queries")
    others = [split for split in collection.qrels if split != "train"]
    if "train" in collection.qrels:
        parts += [_leaks(Leaks(collection, split)) for split in others]
    elif others:
        parts.append("No train split, so nothing can leak from it.")
    return "\n\n".join(parts)


def _documents(collection: Collection) -> str:
    words = titles = empty = 0
    for document in collection.documents:
        words += len(document.contents.split())
        titles += bool(document.title)
        empty += not document.contents
    count = len(collection.docnos)
    return (
        f"Documents: {words / count:.0f} words on average (title and text), {titles:,} with a title, "
        f"{empty:,} empty"
    )


def _splits(collection: Collection) -> str:
    rows = []
    for split, qrels in collection.qrels.items():
        pairs = sum(len(judged) for judged in qrels.values())
        rows.append(
            [split, f"{len(qrels):,}", f"{pairs:,}", f"{pairs / max(1, len(qrels)):.1f}", _grades(qrels)]
        )
    return render(["split", "queries", "judged", "per query", "pairs of each grade"], rows)


def _grades(qrels: Qrels) -> str:
    count = Counter(grade for judged in qrels.values() for grade in judged.values())
    return "  ".join(f"grade {grade}: {count[grade]:,}" for grade in sorted(count))


def _leaks(leaks: Leaks) -> str:
    queries = leaks.collection.split(leaks.split)
    overlap, count = Counter[str](leaks.train_overlap.values()), max(1, len(queries))
    shares = [
        f"{len(leaks.near_twins):,} ({len(leaks.near_twins) / count:.0%}) have a near-twin among the train "
        f"queries (Jaccard of stemmed words ≥ {NEAR_TWIN})",
        *(
            f"{overlap[kind]:,} ({overlap[kind] / count:.0%}): {kind} of the relevant documents "
            f"{'was' if kind == 'none' else 'were'} relevant in training ({label})"
            for kind, label in (("all", "seen"), ("some", "seen"), ("none", "unseen"))
        ),
    ]
    if nothing := overlap["no relevant"]:
        shares.append(
            f"{nothing:,} ({nothing / count:.0%}) have no relevant document: neither seen nor unseen, and "
            "every measure is 0 for them"
        )
    convention = Convention.for_grades(leaks.collection.grades)
    rows = []
    for evaluation in leaks.controls(CONTROL_MEASURES, convention):
        for group, qids in seen_and_unseen(leaks.train_overlap).items():
            means = evaluation.only(qids).means
            rows.append([evaluation.name, group, *(f"{means[measure]:.4f}" for measure in CONTROL_MEASURES)])
    title = f"Leak report: train → {leaks.split}, {len(queries):,} queries"
    table = render(["control", "queries", *CONTROL_MEASURES], rows)
    lead = f"What two rankings that read no document reach ({convention}):"
    return "\n".join([title, *(f"  {share}" for share in shares), lead, table])
