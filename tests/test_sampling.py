"""Row-wise filters and draws, against transformers' own warpers."""

from typing import Any

import pytest
import torch
from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from rolloutgym.training.sampling import SamplingParams, draw, filter_logits


def logits(rows: int = 16, vocabulary: int = 300) -> torch.Tensor:
    return 3 * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("top_k", [0, 1, 50, 299, 300, 5000])
@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.3, 1e-6])
@pytest.mark.parametrize("min_p", [0.0, 0.05, 1.0])
def test_filters_keep_what_transformers_keeps(top_k: int, top_p: float, min_p: float) -> None:
    expected_BV: Any = logits()
    ids: Any = torch.zeros(16, 1, dtype=torch.long)
    if top_k:
        expected_BV = TopKLogitsWarper(top_k)(ids, expected_BV)
    if top_p < 1:
        expected_BV = TopPLogitsWarper(top_p)(ids, expected_BV)
    if min_p:
        expected_BV = MinPLogitsWarper(min_p)(ids, expected_BV)
    got_BV = filter_logits(logits(), SamplingParams(top_k=top_k, top_p=top_p, min_p=min_p))
    assert torch.equal(got_BV, expected_BV)
    assert (got_BV > -torch.inf).any(dim=-1).all()


def test_filters_work_row_by_row_and_leave_their_input_alone() -> None:
    flat_and_sharp_BV = torch.stack([torch.zeros(10), torch.linspace(0, 90, 10)])
    before_BV = flat_and_sharp_BV.clone()
    kept_BV = filter_logits(flat_and_sharp_BV, SamplingParams(top_p=0.5)) > -torch.inf
    assert kept_BV.sum(-1).tolist() == [5, 1]
    assert torch.equal(flat_and_sharp_BV, before_BV)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
def test_the_reported_logprob_is_that_of_the_full_vocabulary_at_the_temperature(temperature: float) -> None:
    params = SamplingParams(temperature=temperature, top_k=5, top_p=0.8, min_p=0.1)
    drawn = draw(logits(), params, torch.Generator().manual_seed(1))
    reference_BV = (logits() / temperature).log_softmax(-1)
    expected_B = reference_BV.gather(-1, drawn.tokens_B[:, None])[:, 0]
    torch.testing.assert_close(drawn.logprobs_B, expected_B, atol=1e-5, rtol=0)


def test_greedy_takes_the_most_likely_token() -> None:
    drawn = draw(logits(), SamplingParams(temperature=0))
    assert torch.equal(drawn.tokens_B, logits().argmax(-1))
    torch.testing.assert_close(drawn.logprobs_B, logits().log_softmax(-1).amax(-1), atol=1e-5, rtol=0)


def test_draws_follow_the_filtered_distribution() -> None:
    logits_BV = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]])).repeat(20_000, 1)
    tokens_B = draw(logits_BV, SamplingParams(top_k=2), torch.Generator().manual_seed(0)).tokens_B
    shares = torch.bincount(tokens_B, minlength=4) / 20_000
    torch.testing.assert_close(shares, torch.tensor([0.625, 0.375, 0.0, 0.0]), atol=0.02, rtol=0)


def test_a_seeded_draw_is_repeated() -> None:
    first, second = (draw(logits(), SamplingParams(), torch.Generator().manual_seed(4)).tokens_B for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize(
    "wrong", [{"temperature": -1.0}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.1}, {"min_p": -0.1}, {"min_p": 2.0}]
)
def test_meaningless_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SamplingParams(**wrong)  # type: ignore[arg-type]
