"""`gr2 serve`: a model folder → an HTTP service with a search page."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gr2.cli.app import Folder, Settings, announce, app
from gr2.serve.config import ServiceConfig
from gr2.serve.judging_config import JudgingConfig

if TYPE_CHECKING:
    from gr2.serve import ServiceInfo


@app.command
def serve(
    folder: Folder,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    api_key_file: Path | None = None,
    config: Annotated[ServiceConfig, Settings] = ServiceConfig(),  # noqa: B008
    judging: Annotated[JudgingConfig, Settings] = JudgingConfig(),  # noqa: B008
) -> None:
    """Serve a model over HTTP, with a search page; with `--judge`, people can judge on it too.

    It prints its address and an example request. Stop it with Ctrl-C.

    Args:
        folder: The folder that `gr2 index` or `gr2 train` wrote, or the name of a model on the Hugging Face
            hub.
        host: The address to listen on; the default accepts connections from this machine only.
        port: The port; 0 picks a free one.
        api_key_file: A file with the API key that clients must send; without it, no key is required.
        config: The settings of the service.
        judging: Judging and learning.
    """
    announce(folder)
    from gr2.model.hub import located
    from gr2.serve import read_key
    from gr2.serve import serve as run

    def on_start(info: "ServiceInfo") -> None:
        print(f"{folder}: {info.documents:,} documents at {info.url}")
        print(f"example: {_example(info.url, api_key_file)}")
        if judging.judge is not None:
            print(f"judge at {info.url}judge, kept in {judging.judge}")
        if not info.texts:
            print("the folder contains no documents: results show docids and scores only")
        elif info.bm25_note:
            print(f"no BM25: {info.bm25_note}")
        if info.exposed and api_key_file is None:
            print("warning: other machines can connect and no --api-key-file is set: anyone can search")
        print("press Ctrl-C to stop", flush=True)

    judged = None if judging.judge is None else judging
    run(
        located(folder),
        config,
        judged,
        api_key=read_key(api_key_file),
        host=host,
        port=port,
        on_start=on_start,
    )


def _example(url: str, api_key_file: Path | None) -> str:
    """A request for a shell."""
    key = "" if api_key_file is None else f' -H "X-API-Key: $(cat {shlex.quote(str(api_key_file))})"'
    body = """-H 'Content-Type: application/json' -d '{"query": "your query", "k": 3}'"""
    return f"curl{key} {body} {url}search"
