"""A budget is kept by a clock that is not a real one: on quick, slow and busy machines."""

from itertools import pairwise

import pytest

from gr2.model.config import VectorConfig
from gr2.model.encoder import Encoder
from gr2.workflows.budget import (
    MIN_STEPS,
    Budget,
    Encoded,
    StepPlan,
    TooSlow,
    encode_within,
    left_undone,
    seconds,
    ways,
    within,
    written,
)

WANTED = VectorConfig()


class Clock:
    """A clock that others move."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr("gr2.workflows.budget.SAVED_EVERY", 100.0)  # a test is no place for many writes
    return Clock()


def budget_of(tmp_path, clock, time: float) -> Budget:
    return Budget(time, tmp_path / "plan.json", clock)


def trained(plan: StepPlan, clock, pace, *, first: float = 0.0, begin: int = 0) -> int:
    """Take the planned steps, each for `pace(step)` seconds; the first takes longer."""
    done, total = begin, plan(begin)
    while done < total:
        clock.now += pace(done) + first * (done == begin)
        done += 1
        total = plan(done)
    return done


def encoding(clock, cost, parts: int = 100):
    """Encode in a hundred parts; `cost(how, share)` seconds for all, at the pace of that share."""

    def encode(how, watch):
        for part in range(1, parts + 1):
            clock.now += cost(how, part / parts) / parts
            watch(part / parts)

    return encode


@pytest.mark.parametrize(
    ("text", "wanted"), [("90s", 90), ("30m", 1800), ("1h30m", 5400), ("2h", 7200), (" 1m5s ", 65)]
)
def test_times_are_read(text, wanted):
    assert seconds(text) == wanted


@pytest.mark.parametrize("text", ["", "30", "m", "0m", "-5m", "1.5h", "30 m", "soon"])
def test_other_times_are_refused(text):
    with pytest.raises(ValueError, match="expected a time"):
        seconds(text)


@pytest.mark.parametrize("time", [1, 59.2, 60, 120, 121, 3600, 3660, 36001])
def test_a_time_is_written_as_it_is_read_and_never_shorter(time):
    assert time <= seconds(written(time)) <= time + 60


def test_all_useful_steps_are_taken_if_there_is_time(clock, tmp_path):
    plan = StepPlan(budget_of(tmp_path, clock, 1000), 200)
    assert trained(plan, clock, lambda step: 1.0) == 200


@pytest.mark.parametrize("first", [0.0, 60.0])
def test_a_slow_machine_trains_less_and_keeps_to_the_time(first, clock, tmp_path):
    budget = budget_of(tmp_path, clock, 1000)
    done = trained(StepPlan(budget, 2000), clock, lambda step: 5.0, first=first)
    assert done == pytest.approx((750 - first) / 5, abs=1), "a quarter is kept for measuring"
    assert budget.spent() <= 750


@pytest.mark.parametrize("busy", [range(2, 6), range(20, 40), range(100, 10**6)])
def test_a_machine_that_is_busy_for_a_while_costs_what_it_costs(busy, clock, tmp_path):
    """Whenever it is four times slower: the time is used, and not exceeded."""
    budget = budget_of(tmp_path, clock, 1000)
    done = trained(StepPlan(budget, 10_000), clock, lambda step: 4.0 if step in busy else 1.0)
    assert 740 <= budget.spent() <= 754
    lost = sum(3 for step in busy[:1000] if step < done)
    assert done == pytest.approx(750 - lost, abs=4)


def test_a_slow_beginning_does_not_decide(clock, tmp_path):
    budget = budget_of(tmp_path, clock, 1000)
    done = trained(StepPlan(budget, 500), clock, lambda step: 20.0 if step < 5 else 1.0)
    assert done == 500


def test_some_steps_are_always_taken(clock, tmp_path):
    budget = budget_of(tmp_path, clock, 10)
    clock.now += 100
    assert trained(StepPlan(budget, 500), clock, lambda step: 50.0) == MIN_STEPS


def test_time_is_kept_for_what_follows(clock, tmp_path):
    budget = budget_of(tmp_path, clock, 1000)
    plan = StepPlan(budget, 2000, later=50, others=2, preparing=30.0)
    done = trained(plan, clock, lambda step: 1.0)
    assert 3 * done + 2 * 30 + 3 * 50 == pytest.approx(750, abs=4)


def test_what_was_spent_before_an_interruption_counts(clock, tmp_path):
    budget = budget_of(tmp_path, clock, 1000)
    plan = StepPlan(budget, 2000)
    for done in range(100):
        assert plan(done) > done
        clock.now += 5.0
    clock.now += 1e6  # nothing runs
    again = budget_of(tmp_path, clock, 1000)
    assert again.spent() == pytest.approx(400, abs=5), "noted every hundred seconds"
    later = StepPlan(again, 2000)
    assert later(99) == plan.steps, "until its own steps tell more"
    assert trained(later, clock, lambda step: 5.0, begin=99) == pytest.approx(99 + 350 / 5, abs=2)


def test_documents_are_read_as_wanted_if_there_is_time(clock, tmp_path):
    budget = budget_of(tmp_path, clock, 1000)
    found = encode_within(budget, WANTED, encoding(clock, lambda how, share: 390.0))
    assert found == Encoded(WANTED)


def test_a_slow_beginning_does_not_change_how_documents_are_read(clock, tmp_path):
    """Nine times too slow at first, for 35 seconds of 400."""
    budget = budget_of(tmp_path, clock, 1000)
    found = encode_within(budget, WANTED, encoding(clock, lambda how, share: 3500 if share < 0.015 else 300))
    assert found == Encoded(WANTED)


def test_loading_the_encoder_says_nothing_about_its_pace(clock, tmp_path):
    """It takes three quarters of the time for encoding, and what follows fits into the rest."""
    budget = budget_of(tmp_path, clock, 1000)

    def encode(how, watch):
        clock.now += 300
        encoding(clock, lambda how, share: 90.0)(how, watch)

    assert encode_within(budget, WANTED, encode) == Encoded(WANTED)


def test_what_is_half_done_is_finished(clock, tmp_path):
    budget = budget_of(tmp_path, clock, 1000)
    found = encode_within(budget, WANTED, encoding(clock, lambda how, share: 300 if share < 0.5 else 3000))
    assert found == Encoded(WANTED)


def test_a_cheaper_way_is_taken_early_and_told(clock, tmp_path):
    costs = {how: cost for how, cost in zip(ways(WANTED), (4000, 390, 200, 100), strict=True)}
    budget = budget_of(tmp_path, clock, 1000)
    found = encode_within(budget, WANTED, encoding(clock, lambda how, share: costs[how]))
    assert found.how.max_tokens == 32 and found.needed == pytest.approx(4000)
    assert budget.spent() <= 400 + 10, "what was given up was given up early"
    again = budget_of(tmp_path, clock, 1000)
    assert encode_within(again, WANTED, None) == found, "an interrupted job keeps to it"


def test_the_last_way_is_never_given_up(clock, tmp_path):
    budget = budget_of(tmp_path, clock, 1)
    found = encode_within(budget, WANTED, encoding(clock, lambda how, share: 1e6))
    assert found.how.max_tokens == 16
    shortest = VectorConfig.leading(16)
    assert ways(shortest) == [shortest], "nothing is cheaper, and nothing longer is tried"


def test_what_was_left_undone_is_told_with_a_budget_that_suffices(clock, tmp_path):
    wanted_time = 2000.0
    budget = budget_of(tmp_path, clock, 1000)
    encode_within(budget, WANTED, encoding(clock, lambda how, share: wanted_time if how.pieces else 100.0))
    plan = StepPlan(budget, 2000)
    trained(plan, clock, lambda step: 1.0)
    said = left_undone(budget, plan, WANTED)
    assert f"first 48 tokens and {2000 - plan.steps:,} of 2,000 training steps" in said
    enough = seconds(said.partition("--budget ")[2].split()[0])
    (tmp_path / "plan.json").unlink()
    larger = budget_of(tmp_path, clock, enough)
    assert encode_within(larger, WANTED, encoding(clock, lambda how, share: wanted_time)) == Encoded(WANTED)
    assert trained(plan := StepPlan(larger, 2000), clock, lambda step: 1.0) == 2000
    assert "everything fitted" in left_undone(larger, plan, WANTED)


def test_a_budget_that_was_exceeded_is_told(clock, tmp_path):
    budget = budget_of(tmp_path, clock, 60)
    encode_within(budget, WANTED, encoding(clock, lambda how, share: 500.0))
    plan = StepPlan(budget, 100)
    trained(plan, clock, lambda step: 10.0)
    said = left_undone(budget, plan, WANTED)
    assert "95 of 100 training steps" in said
    assert said.endswith(f"; {written(budget.spent())} were used of 1m, because even the least took longer")


def test_encoding_says_how_far_it_is_and_can_be_ended(checkpoints):
    texts, shares = [" ".join(["baka"] * n) for n in range(1, 65)], list[float]()
    encoder = Encoder.load(checkpoints["encoder"])
    encoder.encode(texts, watch=shares.append)
    assert len(shares) == 4 and shares[-1] == 1.0
    steps = [later - earlier for earlier, later in pairwise([0.0, *shares])]
    assert steps == sorted(steps, reverse=True), "a share of the tokens: the longest texts come first"
    ticks = iter(range(1000))
    with pytest.raises(TooSlow):
        encoder.encode(texts, batch=4, watch=within(0.1, lambda: float(next(ticks))))
