"""Mechanical changes that no test can notice, because the program does the same, and why."""

LOSSES, OBJECTIVE = "training/losses.py", "training/objective.py"
NOTHING = "nothing = torch.zeros(1, device=next(iter(terms.values())).device) if terms else torch.zeros(1)"
NO_ROWS = 'return {"mgcc": 0.0 * gathered.sum()[None]}'
SAME_MEAN = "the mean of any number of zeros is 0, and of none too"
EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        LOSSES,
        "return (weight * loss).sum(1) / torch.where(mass > 0, mass, 1.0)  # [B]",
        "1.0 → 2.0",
    ): "it divides a sum of no weights, which is 0",
    (OBJECTIVE, NOTHING, "1 → 2"): SAME_MEAN,
    (OBJECTIVE, NOTHING, "1 → 0"): SAME_MEAN,
    (OBJECTIVE, NO_ROWS, "gathered.sum → gathered.mean"): "multiplied by 0",
    (OBJECTIVE, NO_ROWS, "0.0 * gathered.sum()[None] → 0.0 / gathered.sum()[None]"): (
        "0 divided by a sum of representations, which is above 0, is 0 and has no gradient"
    ),
    (
        OBJECTIVE,
        "f_id = f_id if found is None else found",
        "f_id if found is None else found → found",
    ): "without L_MGCC f_id is not used",
}
"""The file, the line and what was changed in it → the reason."""
