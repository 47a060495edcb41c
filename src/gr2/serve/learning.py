"""A service and its judgements → a better model in place of the present one, or an earlier one again.

`gr2 learn` runs as a process of its own, so whatever happens to it, the service answers with the present
model. Afterwards the service loads the folder again; requests that have begun end on the model they began
with. One change at a time.
"""

import asyncio
import logging
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from gr2.serve.judging_schema import LearnReply, VersionReply
from gr2.serve.service import Service
from gr2.workflows.versions import Version, rollback, versions

logger = logging.getLogger(__name__)


class ModelIsChanging(Exception):
    """Learning or rolling back is not possible now."""


class Learning:
    """Changes the model of a service."""

    def __init__(self, service: Service, judgements: Path) -> None:
        """Learn from a folder of judgements."""
        self.service, self.judgements = service, judgements
        self.reply = LearnReply(state="idle", line="", result="")
        """Where it is."""
        self._changing = False
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to learn, in the background."""
        self._begin()
        self.reply = LearnReply(state="running", line="starting", result="")
        self._task = asyncio.create_task(self._learn())

    async def rollback(self, number: int | None) -> None:
        """Go back to an earlier version; a ValueError if there is none."""
        self._begin()
        try:
            await asyncio.to_thread(rollback, self.service.folder, number)
            await self.service.reload()
        finally:
            self._changing = False

    async def versions(self) -> list[VersionReply]:
        """The versions of the model, oldest first; the last one is in use."""
        return [_described(each) for each in await asyncio.to_thread(versions, self.service.folder)]

    async def stop(self) -> None:
        """End learning; the model stays as it is."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
        if self._task is not None:
            await self._task

    def _begin(self) -> None:
        if self._changing:
            raise ModelIsChanging("the model is being changed already; wait until that is done")
        self._changing = True

    async def _learn(self) -> None:
        try:
            result = await self._run()
            await self.service.reload()
            self.reply = LearnReply(state="done", line="", result=result)
        except Exception as error:  # shown to whoever waits for it; the present model stays
            logger.error("learning failed", exc_info=error)
            self.reply = LearnReply(state="failed", line="", result=str(error))
        finally:
            self._changing, self._process = False, None

    async def _run(self) -> str:
        """Run `gr2 learn`; returns its last line, and raises a RuntimeError with its error."""
        folder, device = str(self.service.folder), self.service.config.device
        # -P: a file such as http.py in the working directory must not be imported
        command = [sys.executable, "-P", "-m", "gr2", "learn", folder, str(self.judgements)]
        command += ["--out", folder, "--device", device]
        self._process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
        assert self._process.stdout is not None and self._process.stderr is not None
        said, errors = await asyncio.gather(
            self._last_line(self._process.stdout, show=True), self._last_line(self._process.stderr)
        )
        code = await self._process.wait()
        if code:
            raise RuntimeError(errors.removeprefix("gr2: ") or f"learning ended with code {code}")
        return said

    async def _last_line(self, stream: asyncio.StreamReader, *, show: bool = False) -> str:
        """The last line of a stream that is not blank; each one is shown as it comes."""
        last = ""
        async for content in stream:
            last = content.decode("utf-8", "replace").strip() or last
            if show:
                self.reply = LearnReply(state="running", line=last, result="")
        return last


def _described(version: Version) -> VersionReply:
    return VersionReply(
        number=version.number,
        time=version.time.isoformat(timespec="seconds").replace("+00:00", "Z"),
        learned=version.learned,
        queries=version.queries,
        gain=version.gain,
        current=version.current,
    )
