"""`gr2 serve`: a model folder → an HTTP service with a page."""

from pathlib import Path
from typing import TYPE_CHECKING

from gr2.cli.app import Folder, app

if TYPE_CHECKING:
    from gr2.serve import Opened


@app.command
def serve(
    folder: Folder,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    queue: int = 256,
    batch: int = 16,
    timeout: float = 10.0,
    api_key_file: Path | None = None,
    bm25: bool = True,
) -> None:
    """Serve a trained model over HTTP, with a page to search it; Ctrl-C ends it.

    Args:
        folder: What `gr2 train` wrote.
        host: The address to listen at; by default other machines cannot reach it.
        port: The port; 0 takes one that is free.
        queue: Queries that may wait; who comes then gets 503 and is told when to come again.
        batch: Queries the model answers at a time.
        timeout: Seconds after which a request is given up.
        api_key_file: A file with the key that clients must send; without it nobody needs one.
        bm25: Whether to show BM25's ranking beside the model's, where the folder has documents.
    """
    from gr2.serve import ServiceConfig, read_key
    from gr2.serve import serve as run

    config = ServiceConfig(
        queue=queue, batch=batch, timeout=timeout, api_key=read_key(api_key_file), bm25=bm25
    )

    def opened(what: "Opened") -> None:
        print(f"{folder}: {what.documents:,} documents at {what.url}")
        if not what.texts:
            print("the folder holds no documents: results have docids and scores only")
        elif what.bm25_note:
            print(f"no BM25: {what.bm25_note}")
        if what.exposed and not config.api_key:
            print(
                "other machines can reach this, and there is no --api-key-file: anybody may search",
                flush=True,
            )
        print("Ctrl-C ends it", flush=True)

    run(folder, config, host=host, port=port, opened=opened)
