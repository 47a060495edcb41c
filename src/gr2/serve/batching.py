"""Questions from many clients → batches for one worker thread, which is all that a model allows.

A bounded queue: who does not fit, or would wait longer than half of the timeout, is turned away at once and
told when to come again. A batch that fails is tried again one by one, so that nobody pays for another's
question. This file knows no HTTP and no model.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")
FADING = 0.9  # how much of the known speed stays with each batch
QUEUED = 0.5  # share of the timeout that may be spent in the queue: who is let in is answered in time


class Full(Exception):
    """No room now; `seconds` says when there may be."""

    def __init__(self, seconds: int) -> None:
        """Remember when to come again."""
        super().__init__(f"too many queries are waiting; try again in {seconds} s")
        self.seconds = seconds


class Late(Exception):
    """The answer took longer than the timeout."""


@dataclass
class _Job(Generic[Question, Answer]):
    question: Question
    answer: asyncio.Future[Answer] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Batcher(Generic[Question, Answer]):
    """One worker thread behind a bounded queue."""

    def __init__(
        self,
        work: Callable[[list[Question]], list[Answer]],
        *,
        queue: int,
        batch: int,
        gather: float,
        timeout: float,
        noted: Callable[[int, float], None] = lambda size, seconds: None,
    ) -> None:
        """Prepare; `start` begins to work.

        Args:
            work: answers a batch, in its order; runs in the worker thread, one call at a time.
            queue: questions that may wait.
            batch: questions of a call.
            gather: seconds that a question waits for others.
            timeout: seconds until an answer is no longer wanted.
            noted: is told the size of each batch and how long it took.
        """
        self._work, self._noted = work, noted
        self._batch, self._gather, self._timeout = batch, gather, timeout
        self._waiting: deque[_Job[Question, Answer]] = deque()
        self._room, self._more = queue, asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._task: asyncio.Task[None] | None = None
        self._open = False
        self._cost = 0.0  # seconds a question, lately

    @property
    def waiting(self) -> int:
        """Questions in the queue."""
        return len(self._waiting)

    def full(self) -> Full:
        """What to tell somebody who is turned away now."""
        return Full(max(1, math.ceil(self.waiting * self._cost)))

    async def start(self) -> None:
        """Begin to work, in the running loop."""
        self._open, self._task = True, asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Turn new questions away, answer those that wait, and end the thread."""
        self._open = False
        self._more.set()
        if self._task is not None:
            await self._task
        await asyncio.to_thread(self._thread.shutdown)

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """The answers in order, all of them or `Full`, `Late` or what the work raised."""
        after = self.waiting + len(questions)
        too_long = self.waiting > 0 and after * self._cost > QUEUED * self._timeout
        if not self._open or after > self._room or too_long:
            raise self.full()
        jobs = [_Job[Question, Answer](question) for question in questions]
        self._waiting.extend(jobs)
        self._more.set()
        try:
            async with asyncio.timeout(self._timeout):
                return list(await asyncio.gather(*(job.answer for job in jobs)))
        except TimeoutError:
            raise Late(f"there was no answer within {self._timeout:g} s") from None
        finally:  # whoever is not waited for any more need not be answered, and leaves room
            for job in jobs:
                job.answer.cancel()
            if any(job.answer.cancelled() for job in jobs):
                self._waiting = deque(job for job in self._waiting if not job.answer.done())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while jobs := await self._take():
            began = loop.time()
            questions = [job.question for job in jobs]
            answers = await loop.run_in_executor(self._thread, self._answered, questions)
            for job, answer in zip(jobs, answers, strict=True):
                _deliver(job, answer)
            self._note(len(jobs), loop.time() - began)

    async def _take(self) -> list[_Job[Question, Answer]]:
        """The next question and those that come soon after it; none at all once there will be no more."""
        while self._open or self._waiting:
            if not self._waiting:
                self._more.clear()
                await self._more.wait()
                continue
            await self._gather_more()
            if ready := min(self._batch, len(self._waiting)):
                return [self._waiting.popleft() for _ in range(ready)]
        return []

    async def _gather_more(self) -> None:
        """Wait until there is a whole batch, but not long."""
        until = asyncio.get_running_loop().time() + self._gather
        while self._open and 0 < len(self._waiting) < self._batch:
            self._more.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._more.wait()
            except TimeoutError:
                return

    def _answered(self, questions: list[Question]) -> list[Answer | Exception]:
        """Answers, or what went wrong with each question; runs in the worker thread."""
        try:
            return list(self._work(questions))
        except Exception as error:
            if len(questions) == 1:
                return [error]
        return [answer for question in questions for answer in self._answered([question])]

    def _note(self, size: int, seconds: float) -> None:
        each = seconds / size
        self._cost = FADING * self._cost + (1 - FADING) * each if self._cost else each
        self._noted(size, seconds)


def _deliver(job: _Job[Question, Answer], answer: Answer | Exception) -> None:
    if job.answer.done():  # given up meanwhile
        return
    if isinstance(answer, Exception):
        job.answer.set_exception(answer)
    else:
        job.answer.set_result(answer)
