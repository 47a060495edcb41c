"""Questions from many clients → batches for one worker thread, because a model serves one thread at a time.

The queue is bounded: a request that does not fit, or that would wait longer than half of the timeout, is
rejected at once with the time after which to retry. If a batch fails, its questions are answered one by one,
so that a bad question affects no other.
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
DECAY = 0.9  # weight of the past in the moving average of the cost per question
QUEUE_SHARE = 0.5  # of the timeout: the rest is for answering, so that accepted questions finish in time


class QueueFull(Exception):
    """The queue is full; `seconds` is when to retry."""

    def __init__(self, seconds: int) -> None:
        """Keep the time for Retry-After."""
        super().__init__(f"too many queries are waiting; retry in {seconds} s")
        self.seconds = seconds


class AnswerTimeout(Exception):
    """The answer took longer than the timeout."""

    def __init__(self, seconds: float) -> None:
        """State the timeout."""
        super().__init__(f"no answer within {seconds:g} s")


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
        on_batch: Callable[[int, float], None] = lambda size, seconds: None,
    ) -> None:
        """Set up the queue; `start` starts the worker.

        Args:
            work: Answers a batch, in order; runs in the worker thread, one call at a time.
            queue: Maximum questions that wait.
            batch: Maximum questions per call.
            gather: Seconds that a question waits for others to fill its batch.
            timeout: Seconds until `AnswerTimeout`.
            on_batch: Called with the size and the duration of each batch.
        """
        self._work, self._on_batch = work, on_batch
        self._batch, self._gather, self._timeout = batch, gather, timeout
        self._waiting: deque[_Job[Question, Answer]] = deque()
        self._capacity, self._arrived = queue, asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._task: asyncio.Task[None] | None = None
        self._open = False
        self._cost = 0.0  # seconds per question, moving average

    @property
    def waiting(self) -> int:
        """Questions in the queue."""
        return len(self._waiting)

    def full(self) -> QueueFull:
        """The error for a request that is rejected now."""
        return QueueFull(max(1, math.ceil(self.waiting * self._cost)))

    async def start(self) -> None:
        """Start the worker in the running event loop."""
        self._open, self._task = True, asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Reject new questions, answer the queued ones, and end the thread."""
        self._open = False
        self._arrived.set()
        if self._task is not None:
            await self._task
        await asyncio.to_thread(self._thread.shutdown)

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """All answers, in order; raises `QueueFull`, `AnswerTimeout` or what `work` raised."""
        after = self.waiting + len(questions)
        too_long = self.waiting > 0 and after * self._cost > QUEUE_SHARE * self._timeout
        if not self._open or after > self._capacity or too_long:
            raise self.full()
        jobs = [_Job[Question, Answer](question) for question in questions]
        self._waiting.extend(jobs)
        self._arrived.set()
        try:
            async with asyncio.timeout(self._timeout):
                return list(await asyncio.gather(*(job.answer for job in jobs)))
        except TimeoutError:
            raise AnswerTimeout(self._timeout) from None
        finally:  # abandoned questions leave the queue unanswered
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
            self._record(len(jobs), loop.time() - began)

    async def _take(self) -> list[_Job[Question, Answer]]:
        """The next batch; empty once the queue is closed and drained."""
        while self._open or self._waiting:
            if not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            await self._gather_more()
            if ready := min(self._batch, len(self._waiting)):
                return [self._waiting.popleft() for _ in range(ready)]
        return []

    async def _gather_more(self) -> None:
        """Wait for a full batch, at most for the gather time."""
        until = asyncio.get_running_loop().time() + self._gather
        while self._open and 0 < len(self._waiting) < self._batch:
            self._arrived.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._arrived.wait()
            except TimeoutError:
                return

    def _answered(self, questions: list[Question]) -> list[Answer | Exception]:
        """An answer or an exception for each question; runs in the worker thread."""
        try:
            return list(self._work(questions))
        except Exception as error:
            if len(questions) == 1:
                return [error]
        return [answer for question in questions for answer in self._answered([question])]

    def _record(self, size: int, seconds: float) -> None:
        each = seconds / size
        self._cost = DECAY * self._cost + (1 - DECAY) * each if self._cost else each
        self._on_batch(size, seconds)


def _deliver(job: _Job[Question, Answer], answer: Answer | Exception) -> None:
    if job.answer.done():  # the client has given up
        return
    if isinstance(answer, Exception):
        job.answer.set_exception(answer)
    else:
        job.answer.set_result(answer)
