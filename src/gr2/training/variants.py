"""The variants and the losses of query-docid pairs, each in a registry that users can extend.

A new variant is one function and one row, also from outside the package:

>>> def hinge(log_likelihoods, grades, levels):
...     return (1.0 - log_likelihoods.expand(grades.shape)).clamp_min(0.0).sum(1)
>>> register_variant("hinge", "MLE^q with a hinge", query_loss=hinge)
>>> variant_objective("hinge", ObjectiveConfig()).query_loss
'hinge'
>>> del VARIANTS["hinge"], QUERY_LOSSES["hinge"]
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from gr2.training.config import ObjectiveConfig

if TYPE_CHECKING:
    from torch import Tensor

QueryLoss = Callable[["Tensor", "Tensor", int], "Tensor"]
"""log P(id ∣ q) of each docid row [D], grades [B, D] and L → the loss of each query [B].

Grades are integers; the loss `soft` also takes a teacher's weights, which are floats."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What distinguishes a variant from the full model."""

    summary: str
    """One line, with the paper's name if it has one."""
    switches: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `ObjectiveConfig` that the variant sets."""
    scheme: str = ""
    """The docid scheme that the variant requires; empty means any."""


def _mle(log_likelihoods: "Tensor", grades: "Tensor", levels: int) -> "Tensor":
    from gr2.training import losses

    return losses.mle_q(log_likelihoods, grades, levels=levels)


def _weighted(log_likelihoods: "Tensor", grades: "Tensor", levels: int) -> "Tensor":
    from gr2.training import losses

    return losses.weighted_ce(log_likelihoods, grades)


def _lambda_rank(log_likelihoods: "Tensor", grades: "Tensor", levels: int) -> "Tensor":
    from gr2.training import losses

    return losses.lambda_rank(log_likelihoods, grades)


def _listwise(log_likelihoods: "Tensor", grades: "Tensor", levels: int) -> "Tensor":
    from gr2.training import losses

    return losses.listwise(log_likelihoods, grades)


def _soft(log_likelihoods: "Tensor", grades: "Tensor", levels: int) -> "Tensor":
    from gr2.training import losses

    return losses.soft_ce(log_likelihoods, losses.grade_weights(grades, levels))


QUERY_LOSSES: dict[str, QueryLoss] = {
    "mle": _mle,
    "weighted": _weighted,
    "lambda_rank": _lambda_rank,
    "listwise": _listwise,
    "soft": _soft,
}
"""Losses of query-docid pairs, by the name that `ObjectiveConfig.query_loss` takes."""
UNSMOOTHED = frozenset({"lambda_rank"})
"""Losses that compare docids by their true log-likelihoods, whatever the label smoothing."""

VARIANTS: dict[str, Variant] = {
    "gr2": Variant(summary="GR²: MGCC and both MLE losses"),
    "no-fusion": Variant(summary="−RF: GR² on plain pseudo-query docids", scheme="query"),
    "no-lambda": Variant(summary="−λ: every grade has the same weight", switches={"penalty": "uniform"}),
    "no-max": Variant(summary="−Max: no constraint between grades", switches={"constraint": "off"}),
    "MLE": Variant(summary="MLE: both MLE losses, without MGCC", switches={"gamma": 0.0}),
    "CE": Variant(
        summary="CE: cross-entropy weighted by grade", switches={"gamma": 0.0, "query_loss": "weighted"}
    ),
    "LR": Variant(
        summary="LR: LambdaRank in place of L_MLE^q", switches={"gamma": 0.0, "query_loss": "lambda_rank"}
    ),
    # paper: not in it, from here on.
    "LR-MLE": Variant(
        summary="LambdaRank added to L_MLE^q", switches={"gamma": 0.0, "query_loss": "mle+lambda_rank"}
    ),
    "listwise": Variant(
        summary="ListNet with target 2^g − 1", switches={"gamma": 0.0, "query_loss": "listwise"}
    ),
    # The losses of two grades have different denominators, so one does not bound the other.
    "decoupled": Variant(
        summary="MGCC that contrasts a docid with lower grades only",
        switches={"against": "lower", "constraint": "off"},
    ),
    "soft": Variant(
        summary="soft grades of a teacher; with integer grades the same as listwise",
        switches={"gamma": 0.0, "query_loss": "soft"},
    ),
}
"""The variants of the paper's ablation, four that are not in the paper, and those registered by users."""


def register_variant(
    name: str,
    summary: str,
    *,
    query_loss: QueryLoss | None = None,
    switches: Mapping[str, Any] | None = None,
) -> None:
    """Add a variant: settings of the objective, a custom loss of query-docid pairs, or both.

    Args:
        name: the value of `--variant` and `TrainingConfig.variant`.
        summary: one line.
        query_loss: replaces L_MLE^q; L_MGCC is then dropped unless `switches` set gamma.
        switches: fields of `ObjectiveConfig` and their values.
    """
    if name in VARIANTS:
        raise ValueError(f"a variant {name!r} already exists: {VARIANTS[name].summary}")
    if query_loss is not None and name in QUERY_LOSSES:
        raise ValueError(f"a loss {name!r} already exists")
    if query_loss is not None and "+" in name:
        raise ValueError(f"the name of a loss must not have a +, which adds losses: {name!r}")
    unknown = set(switches or ()) - {field.name for field in fields(ObjectiveConfig)}
    if unknown:
        raise ValueError(f"ObjectiveConfig has no field {sorted(unknown)[0]!r}")
    own: dict[str, Any] = {}
    if query_loss is not None:
        QUERY_LOSSES[name] = query_loss
        own = {"query_loss": name, "gamma": 0.0}
    VARIANTS[name] = Variant(summary=summary, switches={**own, **(switches or {})})


def query_losses(names: str) -> dict[str, QueryLoss]:
    """The losses that `ObjectiveConfig.query_loss` names; an unknown name lists the known ones.

    >>> list(query_losses("mle+lambda_rank"))
    ['mle', 'lambda_rank']
    """
    if unknown := [name for name in names.split("+") if name not in QUERY_LOSSES]:
        raise ValueError(f"no loss is called {unknown[0]!r}; there are: {', '.join(QUERY_LOSSES)}")
    return {name: QUERY_LOSSES[name] for name in names.split("+")}


def variant_of(name: str) -> Variant:
    """A variant by name; the error for an unknown name lists the known ones."""
    if name not in VARIANTS:
        raise ValueError(f"no variant is called {name!r}; there are: {', '.join(VARIANTS)}")
    return VARIANTS[name]


def variant_objective(name: str, config: ObjectiveConfig) -> ObjectiveConfig:
    """The objective of a variant: its own switches, and all other fields from the configuration.

    A setting that contradicts the variant is an error, because one of the two would be ignored.

    >>> variant_objective("MLE", ObjectiveConfig()).gamma
    0.0
    """
    usual = ObjectiveConfig()
    for switch, value in variant_of(name).switches.items():
        given = getattr(config, switch)
        if given not in (value, getattr(usual, switch)):
            raise ValueError(f"the variant {name} sets {switch} to {value}, but it was set to {given}")
    return replace(config, **dict(variant_of(name).switches))
