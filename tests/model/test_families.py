"""Which checkpoints can be trained: files of every kind, families that work, and one error for the others."""

import pickle
import shutil
from pathlib import Path

import pytest
import torch
from helpers import tiny
from safetensors.torch import load_file, save_file

from gr2.model.backbone import FreshDecoder, parts_of, tokenizer_of
from gr2.model.config import NetworkConfig
from gr2.model.encoder import Encoder
from gr2.model.families import family_of
from gr2.model.gr2 import GR2
from gr2.model.network import Network
from gr2.training.fit import fit


def in_shards(folder: Path, kind: str) -> None:
    """Replace the weights by two files and an index, as transformers writes large checkpoints."""
    stored = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(stored)
    halves = {"1": names[: len(names) // 2], "2": names[len(names) // 2 :]}
    stem, end = ("model", "safetensors") if kind == "safetensors" else ("pytorch_model", "bin")
    where = {}
    for number, some in halves.items():
        file = f"{stem}-0000{number}-of-00002.{end}"
        part = {name: stored[name].clone() for name in some}
        if end == "bin":
            torch.save(part, folder / file)
        else:
            save_file(part, folder / file, {"format": "pt"})
        where |= dict.fromkeys(some, file)
    tiny.write_index(folder / f"{stem}.{end}.index.json", where)


@pytest.fixture(scope="module", params=["tied", "untied"])
def whole(request, tmp_path_factory):
    """A T5 checkpoint in one file of safetensors, with or without a head of its own."""
    folder = tiny.save_checkpoint(tmp_path_factory.mktemp("t5"), "t5")
    stored = load_file(folder / "model.safetensors")
    if request.param == "untied":
        stored["lm_head.weight"] = torch.randn(tiny.SIZE, 32)
        save_file(stored, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize("kind", ["bin", "bin in shards", "safetensors in shards"])
def test_weights_are_read_from_files_of_every_kind(whole, kind, tmp_path):
    folder = Path(shutil.copytree(whole, tmp_path / "copy"))
    if kind == "bin":
        torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
    else:
        in_shards(folder, kind.split()[0])
    one, two = parts_of(whole, FreshDecoder()), parts_of(folder, FreshDecoder())
    assert torch.equal(one.head, two.head) and torch.equal(one.embedding, two.embedding)
    assert (
        (one.scale is None)
        == (two.scale is None)
        == ("lm_head.weight" in load_file(whole / "model.safetensors"))
    )
    for name, value in one.decoder.state_dict().items():
        assert torch.equal(two.decoder.state_dict()[name], value), name


class Harm:
    """What would create a file if it were unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_bin_file_never_runs_code(whole, tmp_path):
    folder = Path(shutil.copytree(whole, tmp_path / "copy"))
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(
        pickle.dumps({"shared.weight": Harm(tmp_path / "harm")}, protocol=2)
    )
    with pytest.raises(ValueError, match="its .bin file holds more than weights"):
        parts_of(folder, FreshDecoder())
    assert not (tmp_path / "harm").exists()


def test_a_checkpoint_without_weights_says_what_was_expected(whole, tmp_path):
    from gr2.model.weight_files import stored_tensor

    folder = Path(shutil.copytree(whole, tmp_path / "copy"))
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"has no weights; expected model.safetensors or pytorch_model.bin"):
        stored_tensor(folder, "lm_head.weight")


def save_other(folder: Path, kind: str) -> Path:
    """A tiny random checkpoint of a family that is not among `tiny.FAMILIES`."""
    import transformers as hf

    heads = {
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
    }
    made = {
        "distilbert": lambda: hf.DistilBertModel(
            hf.DistilBertConfig(vocab_size=tiny.SIZE, dim=32, n_layers=1, n_heads=2, hidden_dim=64)
        ),
        "mpnet": lambda: hf.MPNetModel(
            hf.MPNetConfig(
                vocab_size=tiny.SIZE,
                hidden_size=32,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=64,
            )
        ),
        "umt5": lambda: hf.UMT5ForConditionalGeneration(
            hf.UMT5Config(vocab_size=tiny.SIZE, d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2)
        ),
        "mbart": lambda: hf.MBartForConditionalGeneration(
            hf.MBartConfig(vocab_size=tiny.SIZE, d_model=32, encoder_ffn_dim=64, decoder_ffn_dim=64, **heads)
        ),
        "gpt2": lambda: hf.GPT2LMHeadModel(
            hf.GPT2Config(vocab_size=tiny.SIZE, n_embd=32, n_layer=1, n_head=2)
        ),
    }
    torch.manual_seed(0)
    made[kind]().save_pretrained(folder)
    tiny.save_tokenizer(folder)
    return folder


@pytest.mark.parametrize("kind", ["distilbert", "mpnet"])
def test_other_text_encoders_are_trained_saved_and_searched(kind, tmp_path):
    backbone = save_other(tmp_path / kind, kind)
    assert family_of(backbone) == "encoder" and Encoder.load(backbone).encode(["baka"]).shape == (1, 32)
    data = tiny.collection(20)
    model = fit(data, tiny.titles(data, backbone), str(backbone), tmp_path / "m", tiny.training())
    again = GR2.from_pretrained(tmp_path / "m")
    assert again.search_many(data.queries, 3) == model.search_many(data.queries, 3)


@pytest.mark.parametrize("kind", ["umt5", "mbart", "gpt2"])
def test_what_cannot_be_trained_is_refused_by_name_with_what_works(kind, tmp_path, gr2):
    backbone = save_other(tmp_path / kind, kind)
    for read in (lambda: parts_of(backbone, FreshDecoder()), lambda: tokenizer_of(backbone)):
        with pytest.raises(
            ValueError, match=f"{kind}: is a {kind} checkpoint, .* T5 and mT5, BART, text enc"
        ):
            read()
    with pytest.raises(SystemExit, match=f"is a {kind} checkpoint"):
        gr2("docids", "build", "pydocs:json", "--backbone", backbone, "--out", tmp_path / "docids")


def dropouts(network: Network) -> set[float]:
    return {module.p for module in network.modules() if isinstance(module, torch.nn.Dropout)}


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_the_backbone_s_own_dropout_is_kept_or_left_out(family, checkpoints):
    tokens = list(range(4, 20))
    assert dropouts(Network.build(checkpoints[family], tokens)) <= {0.0}
    network = Network.build(checkpoints[family], tokens, NetworkConfig(dropout=True)).train()
    ids, mask = torch.full((3, 8), 9), torch.ones(3, 8, dtype=torch.long)
    encoded = [network.encode(ids, mask) for _ in range(2)]
    decoded = [network.decode(encoded[0], mask, ids) for _ in range(2)]
    assert not torch.equal(*encoded) and not torch.equal(*decoded), "encoder and decoder have it"
    network.eval()
    assert torch.equal(network.encode(ids, mask), network.encode(ids, mask))
    rates = {"t5": "dropout_rate", "bart": "dropout", "encoder": "hidden_dropout_prob"}
    assert getattr(network.encoder.config, rates[family]) == 0.1
