"""Slow and obvious: every docid scored by teacher forcing, and transformers' own constrained beam search."""

import torch
from transformers.modeling_outputs import BaseModelOutput


def token_log_probs(model, encoded, mask, docid, end):
    """Log-softmax over the vocabulary [tokens + end, V], states and target of one docid for one query."""
    target = torch.tensor([[*docid, end]])
    start = torch.tensor([[model.config.decoder_start_token_id]])
    inputs = torch.cat([start, target[:, :-1]], 1)
    out = model(
        encoder_outputs=BaseModelOutput(last_hidden_state=encoded[None]),
        attention_mask=mask[None],
        decoder_input_ids=inputs,
        output_hidden_states=True,
        use_cache=False,
    )
    return out.logits[0].log_softmax(-1), out.decoder_hidden_states[-1][0], target[0]


def children_of(docids, end):
    """Prefix → its continuations, as a dictionary: the trie everybody writes first."""
    table = {}
    for docid in docids:
        path = (*docid, end)
        for depth in range(len(path)):
            table.setdefault(path[:depth], set()).add(path[depth])
    return table


@torch.no_grad()
def score_all(model, encoded, mask, docids, end, normaliser, child_prior=None, length_penalty=0.0):
    """The score of every docid for one query, by brute force."""
    table = children_of(docids, end)
    scores = []
    for docid in docids:
        logp, _, target = token_log_probs(model, encoded, mask, docid, end)
        path, total = tuple(target.tolist()), 0.0
        for step, token in enumerate(path):
            row = logp[step].double()
            if normaliser == "trie":
                allowed = sorted(table[path[:step]])
                extra = [0.0 if child_prior is None else child_prior(path[:step], t) for t in allowed]
                row_allowed = (row[allowed] + torch.tensor(extra, dtype=torch.double)).log_softmax(0)
                total += float(row_allowed[allowed.index(token)])
            else:
                total += float(row[token])
        scores.append(total / len(path) ** length_penalty)
    return scores


@torch.no_grad()
def docid_states(model, encoded, mask, docid, end):
    """The decoder states that read the tokens of one docid: start and end excluded."""
    return token_log_probs(model, encoded, mask, docid, end)[1][1:]


@torch.no_grad()
def generate(model, encoded, mask, docids, end, *, beams, normaliser="vocabulary", length_penalty=0.0):
    """Docid indices and scores of each query from `generate` with a prefix function.

    early_stopping="never": with True, and with False under a length penalty, transformers stops by a
    heuristic before the beam search is over. "never" with a max_length beyond every docid ends a query only
    when no running beam can overtake its finished ones, which is beam search. renormalize_logits=True takes a
    second log-softmax after the forbidden tokens were set to -inf, so it is the softmax over the children.
    """
    table = children_of(docids, end)
    longest = max(map(len, docids)) + 3
    number = {(*docid, end): i for i, docid in enumerate(docids)}

    def allowed(_, prefix):
        # Rows behind their end are only padding; transformers refuses an empty list for them.
        return sorted(table.get(tuple(prefix.tolist()[1:]), {end}))

    out = model.generate(
        encoder_outputs=BaseModelOutput(last_hidden_state=encoded),
        attention_mask=mask,
        num_beams=beams,
        num_return_sequences=beams,
        prefix_allowed_tokens_fn=allowed,
        renormalize_logits=normaliser == "trie",
        length_penalty=length_penalty,
        early_stopping="never",
        max_length=longest,
        do_sample=False,
        forced_eos_token_id=None,
        forced_bos_token_id=None,
        no_repeat_ngram_size=0,
        eos_token_id=end,
        return_dict_in_generate=True,
        output_scores=True,
    )
    found = []
    for sequence in out.sequences.tolist():
        body = sequence[1:]
        found.append(number[tuple(body[: body.index(end) + 1])])
    shape = (len(encoded), beams)
    return torch.tensor(found).view(shape).numpy(), out.sequences_scores.view(shape).numpy()
