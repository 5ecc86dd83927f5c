"""The pure parts of the ReTool-style trainer: sampler, advantages, loss, rewards, metrics, guards."""

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import TrainerControl, TrainerState
from trl.trainer.utils import RepeatSampler as TrlRepeatSampler

from rolloutgym.training.retool.advantages import combine_rewards, group_advantages
from rolloutgym.training.retool.batches import Row, collate
from rolloutgym.training.retool.guards import StabilityGuard, StabilityRules
from rolloutgym.training.retool.loss import StepTotals, reduce_loss, score_tokens, token_losses
from rolloutgym.training.retool.metrics import Metrics
from rolloutgym.training.retool.rewarding import call_rewards, weights_of
from rolloutgym.training.retool.sampler import RepeatSampler

NAN = math.nan

# ---- sampler


@given(
    st.integers(0, 30), st.integers(1, 4), st.integers(1, 6), st.integers(1, 3), st.booleans(), st.integers(0, 2**31)
)
def test_indices_are_trls(size: int, repeats: int, batch: int, uses: int, shuffle: bool, seed: int) -> None:
    data = range(size)
    ours = RepeatSampler(data, repeats, batch, uses, shuffle=shuffle, seed=seed)
    theirs = TrlRepeatSampler(data, repeats, batch, uses, shuffle=shuffle, seed=seed)
    assert list(ours) == list(theirs)
    assert len(ours) == len(theirs) == len(list(ours))
    # Their generator goes on; ours is told the epoch, so that a resumed run finds its place.
    ours.set_epoch(1)
    assert list(ours) == list(theirs)


def test_an_epoch_has_its_order_whenever_it_is_asked_for() -> None:
    sampler = RepeatSampler(range(50), 2, 5, seed=3)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(4)
    assert list(sampler) != first
    sampler.set_epoch(0)
    assert list(sampler) == first


# ---- advantages


def test_advantages_by_hand() -> None:
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0, 2.0, 2.0, 2.0, 2.0])
    scored = group_advantages(rewards, 4, "group")
    std = math.sqrt(1 / 3)  # of 1, 0, 0, 1, unbiased
    half = 0.5 / (std + 1e-4)
    assert scored.advantages_B.tolist() == pytest.approx([half, -half, -half, half, 0, 0, 0, 0], rel=1e-5)
    assert scored.frac_zero_std == 0.5
    plain = group_advantages(rewards, 4, "none").advantages_B
    assert plain.tolist() == [0.5, -0.5, -0.5, 0.5, 0, 0, 0, 0]
    by_batch = group_advantages(rewards, 4, "batch").advantages_B
    assert by_batch[0].item() == pytest.approx(0.5 / (rewards.std().item() + 1e-4))


def test_a_faulted_rollout_is_as_if_it_were_not_there() -> None:
    seven = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.5])
    with_fault = torch.cat([seven[:3], torch.tensor([NAN]), seven[3:]])
    alone = group_advantages(seven, 7, "group").advantages_B
    among = group_advantages(with_fault, 8, "group").advantages_B
    assert among[3] == 0.0
    assert torch.cat([among[:3], among[4:]]).tolist() == pytest.approx(alone.tolist(), rel=1e-5)


def test_groups_without_rewards_learn_nothing_and_break_nothing() -> None:
    scored = group_advantages(torch.tensor([NAN, NAN, 1.0, NAN]), 2, "group")
    assert scored.advantages_B.tolist() == [0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(("count", "group"), [(4, 1), (5, 2)])
def test_groups_that_make_no_sense_are_refused(count: int, group: int) -> None:
    with pytest.raises(ValueError, match="group"):
        group_advantages(torch.zeros(count), group, "group")


def test_rewards_are_weighted_over_the_functions_that_gave_one() -> None:
    rewards = torch.tensor([[1.0, 2.0], [NAN, 2.0], [NAN, NAN]])
    combined = combine_rewards(rewards, torch.tensor([1.0, 0.5]))
    assert combined[:2].tolist() == [2.0, 1.0]
    assert math.isnan(combined[2])


# ---- loss


def test_the_clipped_loss_by_hand() -> None:
    ratios = [1.0, 1.5, 1.5, 0.5, 0.5]
    advantages = [2.0, 2.0, -2.0, 2.0, -2.0]
    logps = torch.tensor(ratios).log().unsqueeze(1)
    losses = token_losses(
        logps, torch.zeros(5, 1), torch.tensor(advantages), torch.ones(5, 1), epsilon_low=0.2, epsilon_high=0.28
    )
    assert losses.loss_BT.flatten().tolist() == pytest.approx([-2.0, -2.56, 3.0, -1.0, 1.6])
    assert losses.clipped_low_BT.flatten().tolist() == [False, False, False, False, True]
    assert losses.clipped_high_BT.flatten().tolist() == [False, True, False, False, False]


def test_the_kl_term_by_hand() -> None:
    logps, reference = torch.tensor([[-1.0]]), torch.tensor([[-1.5]])
    losses = token_losses(
        logps, logps, torch.zeros(1), torch.ones(1, 1), epsilon_low=0.2, epsilon_high=0.2, beta=0.1,
        ref_logps_BT=reference,
    )  # fmt: skip
    k3 = math.exp(-0.5) + 0.5 - 1
    assert losses.kl_BT is not None
    assert losses.kl_BT.item() == pytest.approx(k3)
    assert losses.loss_BT.item() == pytest.approx(0.1 * k3)
    with pytest.raises(ValueError, match="reference"):
        token_losses(logps, logps, torch.zeros(1), torch.ones(1, 1), epsilon_low=0.2, epsilon_high=0.2, beta=0.1)


@pytest.mark.parametrize(
    ("loss_type", "expected"),
    [("bnpo", (1 + 2 + 3) / 3), ("dapo", (1 + 2 + 3) / 3), ("grpo", (1.5 + 3) / 2), ("dr_grpo", 6 / (2 * 10))],
)
def test_reductions_by_hand(loss_type: Any, expected: float) -> None:
    loss = torch.tensor([[1.0, 2.0, 99.0], [3.0, 99.0, 99.0]])
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    assert reduce_loss(loss, mask, StepTotals(3, 2), loss_type, 10).item() == pytest.approx(expected)
    shares = [reduce_loss(loss[i : i + 1], mask[i : i + 1], StepTotals(3, 2), loss_type, 10) for i in range(2)]
    assert sum(share.item() for share in shares) == pytest.approx(expected)


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_scores_in_chunks_are_those_of_a_whole_softmax(chunk: int) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(2, 4, 8, generator=generator, requires_grad=True)
    head = torch.nn.Linear(8, 11, bias=False)
    tokens = torch.randint(0, 11, (2, 4), generator=generator)
    scores = score_tokens(hidden, head, tokens, 0.7, chunk=chunk, entropy=True)
    logps = torch.log_softmax(head(hidden) / 0.7, dim=-1)
    expected = logps.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    assert torch.allclose(scores.logps_BT, expected, atol=1e-6)
    assert scores.entropy_BT is not None
    assert torch.allclose(scores.entropy_BT, -(logps.exp() * logps).sum(-1), atol=1e-6)
    (gradient,) = torch.autograd.grad(scores.logps_BT.sum(), hidden, retain_graph=True)
    (wanted,) = torch.autograd.grad(expected.sum(), hidden)
    assert torch.allclose(gradient, wanted, atol=1e-6)


def test_masked_tokens_have_no_gradient() -> None:
    """Also where the difference overflows: padding has no old log-probability, and may be very unlikely."""
    logps = torch.tensor([[0.0, -200.0, 0.0, 200.0]], requires_grad=True)
    mask, zeros = torch.tensor([[1.0, 0.0, 1.0, 0.0]]), torch.zeros(1, 4)
    losses = token_losses(
        logps, zeros, -torch.ones(1), mask, epsilon_low=0.2, epsilon_high=0.2, beta=0.1, ref_logps_BT=zeros
    )
    loss = reduce_loss(losses.loss_BT, mask, StepTotals(2, 1), "bnpo", 3)
    assert loss.item() == 1.0
    (gradient,) = torch.autograd.grad(loss, logps)
    assert gradient.tolist() == [[0.5, 0.0, 0.5, 0.0]]


def test_padding_is_known_from_lengths_even_where_its_id_is_a_real_token() -> None:
    rows = [Row([7, 2], [2, 5], [1, 1], 1.0), Row([2], [2, 2, 2], [1, 0, 1], -1.0)]
    batch = collate(rows, pad_id=2, device=torch.device("cpu"))
    assert batch.attention_BL.tolist() == [[1, 1, 1, 1, 0], [0, 1, 1, 1, 1]]
    assert batch.positions_BL.tolist() == [[0, 1, 2, 3, 3], [0, 0, 1, 2, 3]]
    assert batch.mask_BT.tolist() == [[1, 1, 0], [1, 0, 1]]


# ---- rewards


def length(completions: Sequence[str], **columns: Any) -> list[float]:
    return [float(len(text)) for text in completions]


async def even(completions: Sequence[str], **columns: Any) -> list[float | None]:
    return [1.0 if len(text) % 2 == 0 else None for text in completions]


def broken(**columns: Any) -> list[float]:
    raise ZeroDivisionError


def test_reward_functions_may_be_async_and_abstain() -> None:
    given_rewards = call_rewards([length, even], torch.ones(2), {"completions": ["a", "bb"]}, 2, "raise")
    assert given_rewards[:, 0].tolist() == [1.0, 2.0]
    assert math.isnan(given_rewards[0, 1])
    assert given_rewards[1, 1] == 1.0


def test_errors_are_raised_or_nan_by_option_and_weight_zero_is_not_called() -> None:
    columns = {"completions": ["a", "b"]}
    with pytest.raises(ZeroDivisionError):
        call_rewards([broken], torch.ones(1), columns, 2, "raise")
    assert torch.isnan(call_rewards([broken], torch.ones(1), columns, 2, "nan")).all()
    assert torch.isnan(call_rewards([broken], torch.zeros(1), columns, 2, "raise")).all()


def test_wrong_numbers_of_rewards_and_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="2 rewards for 3 rows"):
        call_rewards([length], torch.ones(1), {"completions": ["a", "b"]}, 3, "raise")
    with pytest.raises(ValueError, match="1 reward weights for 2"):
        weights_of([length, even], [1.0])


# ---- metrics and guards


def test_means_are_weighted_and_extremes_are_over_all_processes() -> None:
    one, other = Metrics(), Metrics()
    one.mean("entropy", 1.0, 30)
    one.mean("entropy", NAN, 5)
    other.mean("entropy", 3.0, 10)
    one.least("low", 0.3)
    other.least("low", 0.1)
    other.most("high", 4.0)
    theirs: list[Any] = []
    other.summary(lambda part: theirs.extend(part) or [({}, {}, {})])  # type: ignore[func-returns-value]
    summary = one.summary(lambda part: part + [(dict(a), {"low": 0.1}, {"high": 4.0}) for a, _, _ in theirs])
    assert summary == {"entropy": pytest.approx(1.5), "low": 0.1, "high": 4.0}
    assert one.summary(lambda part: part) == {}


def _logs(**values: float) -> dict[str, float]:
    return {"loss": 0.1, "grad_norm": 1.0, "reward": 0.5, **values}


@pytest.mark.parametrize(
    ("rules", "series", "reason"),
    [
        (StabilityRules(), [_logs(), _logs(loss=NAN)], "non-finite"),
        (StabilityRules(), [_logs(grad_norm=math.inf)], "non-finite"),
        (StabilityRules(), [_logs(), _logs(skipped_steps=0.1)], "non-finite"),
        (StabilityRules(non_finite_steps=2), [_logs(loss=NAN), _logs(), _logs(loss=NAN)], None),
        (StabilityRules(max_kl=0.5), [_logs(kl=0.4), _logs(kl=0.6)], "KL"),
        (StabilityRules(max_grad_norm=5, window=2), [_logs(grad_norm=9.0), _logs(grad_norm=8.0)], "gradient norm"),
        (StabilityRules(max_grad_norm=5, window=2), [_logs(grad_norm=9.0), _logs(grad_norm=0.5)], None),
        (StabilityRules(reward_collapse=0.3, window=2), [_logs(reward=r) for r in (0.9, 0.9, 0.2, 0.2)], "reward"),
        (StabilityRules(reward_collapse=0.3, window=2), [_logs(reward=r) for r in (0.9, 0.1, 0.9, 0.1)], None),
    ],
)
def test_instability_is_named(rules: StabilityRules, series: list[dict[str, float]], reason: str | None) -> None:
    guard, state, control = StabilityGuard(rules), TrainerState(), TrainerControl()
    for logs in series:
        guard.on_log(SimpleNamespace(), state, control, logs)  # type: ignore[arg-type]
    assert control.should_training_stop == control.should_save == (reason is not None)
    if reason is not None:
        assert reason in str(state.log_history[-1]["stopped_early"])
