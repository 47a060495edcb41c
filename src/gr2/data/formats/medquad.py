"""MedQuAD's XML pages, its judged answers and LiveQA's questions → a collection of answers on health.

A document is one answer of a page, called `SOURCE_PAGE_SecN`. Its judgements by people (1 incorrect … 4
excellent) become grades 0 to 3 of the split `test`, whose questions are those of TREC LiveQA 2017. The split
`train` is made from the structure: the question that a page asks has grade 3 for its own answer and 1 for
other answers of the page.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from gr2.data.collection import Collection, Document
from gr2.data.formats.lines import FormatError, text_lines

OWN, SAME_PAGE = 3, 1
SIBLINGS = 20
"""Other answers of a page that are judged for one question, at most; the first by their docnos."""


class Answer(NamedTuple):
    """One answer of a page, and the question it answers."""

    document: Document
    question: str
    page: str
    source: str


def read_medquad(pages: Iterable[Path], judged: Path, questions: Path, *, whole: Iterable[str]) -> Collection:
    """A collection of all answers from some sources, and of the pages of other sources with a judged answer.

    Args:
        pages: The XML files.
        judged: Lines of question number, judgement (`2-Related`) and answer file.
        questions: The questions of TREC LiveQA 2017 with their summaries, as XML.
        whole: Sources of which every answer is a document.
    """
    answers = [answer for path in sorted(pages) for answer in _answers(path)]
    grades, complete = _judgements(judged), set(whole)
    asked_for = {docno for row in grades.values() for docno in row}
    kept_pages = {answer.page for answer in answers if answer.document.docno in asked_for}
    kept = [answer for answer in answers if answer.source in complete or answer.page in kept_pages]
    known = {answer.document.docno for answer in kept}
    test = {qid: {docno: g for docno, g in row.items() if docno in known} for qid, row in grades.items()}
    test = {qid: row for qid, row in test.items() if any(row.values())}
    train, texts = _structure(kept)
    summaries = _summaries(questions)
    if missing := sorted(test.keys() - summaries.keys()):
        raise FormatError(questions, 0, f"has no question {missing[0].removeprefix('LQ')}, which is judged")
    return Collection(
        name="medquad",
        documents=tuple(answer.document for answer in kept),
        queries={qid: summaries[qid] for qid in test} | texts,
        qrels={"train": train, "test": test},
    )


def _structure(answers: Iterable[Answer]) -> tuple[dict[str, dict[str, int]], dict[str, str]]:
    """The judgements and the texts of the questions that pages ask; the qid is T and the answer's docno."""
    pages: dict[str, list[str]] = {}
    texts: dict[str, str] = {}
    for answer in answers:
        pages.setdefault(answer.page, []).append(answer.document.docno)
        texts[f"T{answer.document.docno}"] = answer.question
    qrels: dict[str, dict[str, int]] = {}
    for docnos in pages.values():
        for docno in docnos:
            others = [other for other in sorted(docnos) if other != docno][:SIBLINGS]
            qrels[f"T{docno}"] = {docno: OWN} | dict.fromkeys(others, SAME_PAGE)
    return qrels, texts


def _answers(path: Path) -> Iterable[Answer]:
    """The answers of a page that have a text; some subsets come without."""
    page = _parsed(path)
    source, number = page.get("source", ""), page.get("id", "")
    title, url = _text(page.find("Focus")), page.get("url", "")
    for pair in page.iter("QAPair"):
        text = _text(pair.find("Answer"))
        if text:
            docno = f"{source}_{number}_Sec{pair.get('pid', '')}"
            document = Document(docno, title, text, url)
            yield Answer(document, _text(pair.find("Question")), f"{source}_{number}", source)


def _judgements(path: Path) -> Mapping[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for line, text in text_lines(path):
        cells = text.split()
        if len(cells) != 3 or cells[1][:1] not in "1234" or not cells[0].isdigit():
            raise FormatError(path, line, "expected question, judgement (such as 2-Related) and answer")
        found.setdefault(f"LQ{cells[0]}", {})[cells[2].removesuffix(".txt")] = int(cells[1][0]) - 1
    return found


def _summaries(path: Path) -> dict[str, str]:
    """LQ and the number of each question → its summary."""
    found = {}
    for question in _parsed(path).iter("NLM-QUESTION"):
        found[f"LQ{question.get('qid', '').removeprefix('TQ')}"] = _text(question.find("NLM-Summary"))
    return found


def _parsed(path: Path) -> ElementTree.Element:
    try:
        return ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        raise FormatError(path, error.position[0], f"expected XML: {error.msg}") from None
    except (LookupError, ValueError) as error:  # of the encoding that it names
        raise FormatError(path, 1, f"expected XML: {error}") from None


def _text(element: ElementTree.Element | None) -> str:
    return "" if element is None else " ".join("".join(element.itertext()).split())
