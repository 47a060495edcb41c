"""`gr2 card`: the model card that the Hugging Face hub shows."""

from dataclasses import asdict

from gr2.cli.app import Model, announce, app


@app.command
def card(
    folder: Model,
    /,
    *,
    license: str | None = None,
    language: tuple[str, ...] | None = None,
    datasets: tuple[str, ...] | None = None,
) -> None:
    """Write the model card (README.md) that the Hugging Face hub shows.

    What is not given stays as it is. Do not edit the file by hand: its checksum would no longer match, and
    the model would not load.

    Args:
        folder: A model folder.
        license: Licence of model and documents, as the hub names it: apache-2.0, cc-by-4.0, ...
        language: Languages of the documents, by ISO 639-1 code: en, de, ...
        datasets: Data sets on the hub that the documents are from.
    """
    announce(folder)
    from gr2.model.card import CardFields
    from gr2.model.gr2 import GR2
    from gr2.store import extended_folder

    model = GR2.from_pretrained(folder, device="cpu")
    before = CardFields(**model.provenance.get("card", {}))
    fields = CardFields(
        license=before.license if license is None else license,
        language=before.language if language is None else language,
        datasets=before.datasets if datasets is None else datasets,
    )
    model.provenance["card"] = asdict(fields)
    with extended_folder(folder) as temporary:
        model.save_description(temporary)
    print(f"{folder / 'README.md'}: written; `hf upload OWNER/NAME {folder} .` uploads the folder")
