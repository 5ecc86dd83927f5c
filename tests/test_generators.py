"""Generation with one shared cache: what it samples and reports equals an uncached, unpadded model."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import trl
from transformers import MistralConfig, MistralForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM
from transformers.cache_utils import DynamicLayer

from rolloutgym.models import Message, ToolSpec
from rolloutgym.training.chat import ChatEncoder, InlineEncoder, UnstableTemplate
from rolloutgym.training.generators.base import Conversation, Sampled, TokenBatch
from rolloutgym.training.generators.transformers import RoomyLayer, TransformersGenerator, evaluation_mode
from rolloutgym.training.generators.vllm import VLLMGenerator
from rolloutgym.training.sampling import SamplingParams
from rolloutgym.training.stops import StopTags, decode
from rolloutgym.training.tiny import byte_tokenizer, tiny_llama, word_tokenizer
from rolloutgym.training.traces import Trace

torch.set_num_threads(1)  # tiny matrices; and test processes share the cores

TOKENIZER = byte_tokenizer(tags=("</code>",))
EOS = TOKENIZER.eos_token_id


def sharp(model: Any) -> PreTrainedModel:
    """Weights far from zero, so that a wrong mask or position changes the numbers."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    model.eval()
    assert isinstance(model, PreTrainedModel)
    return model


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return sharp(tiny_llama(TOKENIZER, layers=3))


def qwen2() -> PreTrainedModel:
    config = Qwen2Config(
        vocab_size=len(TOKENIZER),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=EOS,
        pad_token_id=TOKENIZER.pad_token_id,
        bos_token_id=None,
    )
    torch.manual_seed(0)
    return sharp(Qwen2ForCausalLM(config))


def conversations(sizes: Sequence[int]) -> list[Conversation]:
    return [Conversation((Message(role="user", content="q" * size),)) for size in sizes]


def play(generator: TransformersGenerator, sizes: Sequence[int], turns: int, seed: int = 0) -> list[Trace]:
    """A ragged game: rows speak up to 6 + row tokens a turn, hear replies of different lengths, and leave at
    different times."""
    draws = random.Random(seed)
    batch = generator.begin(conversations(sizes))
    live = list(range(len(sizes)))
    for turn in range(turns):
        said = batch.generate({row: 6 + row for row in live})
        assert list(said) == live
        for row in live:
            assert batch.reply(row, [Message(role="user", content="r" * draws.randint(0, 30))], room=200)
        live = [row for row in live if row % turns != turn]
        if not live:
            break
    batch.close()
    return [batch.trace(row) for row in range(len(sizes))]


def uncached_logprobs(model: PreTrainedModel, trace: Trace, temperature: float) -> list[float]:
    ids = trace.ids_from(0)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0].float() / temperature
    start = len(trace.prompt_ids)
    rows = logits[start - 1 : -1].log_softmax(-1)
    return [float(row[token]) for row, token in zip(rows, trace.completion_ids_T, strict=True)]


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(),
        SamplingParams(temperature=0.7, top_k=40, top_p=0.9, min_p=0.01),
        SamplingParams(temperature=1.5),
    ],
)
def test_logprobs_equal_an_uncached_unpadded_forward(model: PreTrainedModel, sampling: SamplingParams) -> None:
    traces = play(TransformersGenerator(model, TOKENIZER, sampling, seed=1), [3, 40, 1, 17, 25, 60, 2, 9, 33], turns=4)
    assert len({len(trace.completion_ids_T) for trace in traces}) > 3
    for trace in traces:
        reference = uncached_logprobs(model, trace, sampling.temperature)
        for own, logprob, expected in zip(trace.env_mask_T, trace.logprobs_T, reference, strict=True):
            assert logprob == (pytest.approx(expected, abs=5e-5) if own else 0.0)


def test_logprobs_equal_an_uncached_forward_for_qwen2() -> None:
    model = qwen2()
    for trace in play(TransformersGenerator(model, TOKENIZER, seed=1), [3, 20, 8], turns=3):
        reference = uncached_logprobs(model, trace, 1.0)
        own = [place for place, mine in enumerate(trace.env_mask_T) if mine]
        assert [trace.logprobs_T[place] for place in own] == pytest.approx([reference[p] for p in own], abs=5e-5)


def test_an_adapter_on_top_changes_nothing_but_the_numbers() -> None:
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    adapted: Any = peft.get_peft_model(sharp(tiny_llama(TOKENIZER)), config).eval()
    for trace in play(TransformersGenerator(adapted, TOKENIZER, seed=1), [3, 20], turns=2):
        reference = uncached_logprobs(adapted, trace, 1.0)
        own = [place for place, mine in enumerate(trace.env_mask_T) if mine]
        assert [trace.logprobs_T[place] for place in own] == pytest.approx([reference[p] for p in own], abs=5e-5)


def test_greedy_rows_do_not_depend_on_their_neighbours(model: PreTrainedModel) -> None:
    sizes = [3, 40, 1, 17]
    generator = TransformersGenerator(model, TOKENIZER, SamplingParams(temperature=0))

    def spoken(sizes: Sequence[int]) -> list[list[int]]:
        batch = generator.begin(conversations(sizes))
        for _ in range(3):
            batch.generate(dict.fromkeys(range(len(sizes)), 12))
            for row in range(len(sizes)):
                batch.reply(row, [Message(role="user", content="r" * sizes[row])], room=99)
        return [batch.trace(row).completion_ids_T for row in range(len(sizes))]

    assert spoken(sizes) == [spoken([size])[0] for size in sizes]


def test_a_seed_repeats_the_draws(model: PreTrainedModel) -> None:
    first, second = (play(TransformersGenerator(model, TOKENIZER, seed=5), [3, 9], turns=2) for _ in range(2))
    assert [trace.completion_ids_T for trace in first] == [trace.completion_ids_T for trace in second]


def test_nothing_is_prefilled_twice(model: PreTrainedModel) -> None:
    columns: list[int] = []
    hook = model.register_forward_pre_hook(
        lambda module, args, kwargs: columns.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    play(TransformersGenerator(model, TOKENIZER, seed=1), [50, 50], turns=2)
    hook.remove()
    prompt = columns[0]
    assert prompt > 50
    assert max(columns[1:]) < prompt  # later blocks hold a reply, never the prompt
    assert columns.count(1) > len(columns) - 4


def test_the_cache_is_transformers_own_without_the_copies() -> None:
    """The same keys and values after every step, prefill, rows dropped and growth among them; a token moves nothing."""
    draws = torch.Generator().manual_seed(0)
    roomy: Any = RoomyLayer()
    plain: Any = DynamicLayer()  # type: ignore[no-untyped-call]
    rows, moved = 3, 0
    for column, width in enumerate([40, *[1] * 200, 7, *[1] * 60]):
        keys, values = (torch.randn(rows, 2, width, 4, generator=draws) for _ in range(2))
        before = roomy.keys.data_ptr() if column else 0
        ours, theirs = roomy.update(keys, values), plain.update(keys, values)
        moved += roomy.keys.data_ptr() != before
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
        assert roomy.get_seq_length() == plain.get_seq_length()
        if column == 100:
            rows = 2
            for layer in (roomy, plain):
                layer.batch_select_indices(torch.tensor([0, 2]))
    assert moved == 3  # at first, rows dropped, full


def test_a_row_that_never_began_holds_its_place(model: PreTrainedModel) -> None:
    batch = TransformersGenerator(model, TOKENIZER).begin([*conversations([3]), None])
    batch.generate({0: 2})
    trace = batch.trace(1)
    assert (trace.prompt_ids, trace.completion_ids_T, trace.env_mask_T, trace.logprobs_T) == ([EOS], [EOS], [0], [0.0])


def test_models_that_cannot_share_a_cache_are_refused() -> None:
    config = MistralConfig(
        vocab_size=len(TOKENIZER), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, sliding_window=8,
    )  # fmt: skip
    with pytest.raises(ValueError, match="full attention"):
        TransformersGenerator(MistralForCausalLM(config), TOKENIZER)


def test_evaluation_mode_is_left_as_it_was_entered() -> None:
    model = tiny_llama(TOKENIZER)
    model.train()

    def fail_inside() -> None:
        with evaluation_mode(model):
            assert not model.training
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert model.training


def test_gradient_checkpointing_does_not_cost_the_cache() -> None:
    model = sharp(tiny_llama(TOKENIZER))
    model.activation_checkpointing_enable()
    model.train()
    with evaluation_mode(model):
        (trace,) = play(TransformersGenerator(model, TOKENIZER, seed=1), [9], turns=1)
        reference = uncached_logprobs(model, trace, 1.0)
    own = [place for place, mine in enumerate(trace.env_mask_T) if mine]
    assert [trace.logprobs_T[place] for place in own] == pytest.approx([reference[p] for p in own], abs=5e-5)
    assert model.is_activation_checkpointing


# ---- where a turn ends ----------------------------------------------------------------------------------------------


def test_a_stop_tag_is_found_wherever_the_tokenizer_cuts_it() -> None:
    plain = byte_tokenizer()
    joined = byte_tokenizer(merges=[("e", ">"), ("e>", "x")])  # the tag ends inside the token `e>x`
    for tokenizer in (plain, joined, TOKENIZER):
        stops = StopTags(tokenizer, ["</code>", "</answer>"])
        ids = tokenizer.encode("<code>1</code>x")
        ends = [end for end in range(1, len(ids) + 1) if stops.complete(ids[:end])]
        assert "</code>" in decode(tokenizer, ids[: ends[0]])
        assert "</code>" not in decode(tokenizer, ids[: ends[0] - 1])
    assert len(joined.encode("</code>x")) < len(plain.encode("</code>x"))


@pytest.mark.parametrize("text", ["</", "code>", "</code", "<code>", "< /code>", ""])
def test_half_a_tag_ends_nothing(text: str) -> None:
    assert not StopTags(TOKENIZER, ["</code>"]).complete(TOKENIZER.encode("print(1)" + text))


def test_a_tag_after_characters_of_several_bytes() -> None:
    assert StopTags(TOKENIZER, ["</代码>"]).complete(byte_tokenizer().encode("café </代码>"))


def test_an_empty_tag_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopTags(TOKENIZER, [""])


def test_turns_end_at_end_of_turn_tag_or_budget(model: PreTrainedModel) -> None:
    stop = TOKENIZER.encode("</code>")[0]

    def forced(token: int, budget: int) -> tuple[str, bool, int]:
        generator = TransformersGenerator(model, TOKENIZER, SamplingParams(temperature=0), stop_tags=["</code>"])
        handle = model.lm_head.register_forward_hook(
            lambda module, args, output: torch.nn.functional.one_hot(torch.tensor([[token]]), len(TOKENIZER)).float()
        )
        try:
            turn = generator.begin(conversations([2])).generate({0: budget})[0]
        finally:
            handle.remove()
        return turn.message.content, turn.complete, turn.tokens

    assert forced(EOS, 5) == ("", True, 1)
    assert forced(stop, 5) == ("</code>", True, 1)
    assert forced(TOKENIZER.encode("a")[0], 5) == ("aaaaa", False, 5)


# ---- chat -----------------------------------------------------------------------------------------------------------


def text_of(ids: Sequence[int]) -> str:
    return str(TOKENIZER.decode(list(ids)))


def test_a_continuation_is_what_the_template_would_write() -> None:
    encoder = ChatEncoder(TOKENIZER)
    ask, answer, more = (
        Message(role="user", content="ask"),
        Message(role="assistant", content="answer"),
        Message(role="user", content="more"),
    )
    prompt = encoder.prompt([ask], [])
    whole = TOKENIZER.apply_chat_template(
        [message.model_dump() for message in (ask, answer, more)], tokenize=False, add_generation_prompt=True
    )
    closed = prompt + TOKENIZER.encode("answer<|im_end|>") + encoder.continuation([more], closed_by=EOS)
    cut = prompt + TOKENIZER.encode("answer") + encoder.continuation([more], closed_by=None)
    assert text_of(closed) == text_of(cut) == whole


def test_a_turn_is_closed_once_by_whatever_token_the_model_ends_it_with(model: PreTrainedModel) -> None:
    """As Gemma does, whose tokenizer has another `eos_token` than its template: the model's own settings name both."""
    tokenizer = byte_tokenizer()
    tokenizer.eos_token = "<|pad|>"
    end, pad = TOKENIZER.encode("<|im_end|>")[0], tokenizer.eos_token_id
    encoder = ChatEncoder(tokenizer)
    more = [Message(role="user", content="more")]
    begun = "\n<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n"
    assert text_of(encoder.continuation(more, closed_by=end)) == begun
    assert text_of(encoder.continuation(more, closed_by=None)) == "<|im_end|>" + begun
    assert text_of(encoder.continuation(more, closed_by=pad)) == "<|im_end|>" + begun  # not the template's: still open

    class Ends:
        def sample(self, traces: Any, budgets: Any) -> dict[int, Sampled]:
            return {row: Sampled([*tokenizer.encode("hi"), end], [0.0] * 3, "end_of_turn") for row in traces}

    batch = TokenBatch(conversations([1]), tokenizer, encoder, Ends())  # type: ignore[arg-type]
    assert batch.generate({0: 9})[0].action == "hi"
    batch.reply(0, more, room=99)
    assert text_of(batch.trace(0).completion_ids_T) == "hi<|im_end|>" + begun


def test_tool_messages_follow_the_call_they_answer() -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'tool' %}{% if messages[loop.index0 - 1].role == 'user' %}"
        "{{ raise_exception('tool after user') }}{% endif %}<tool>{{ m.content }}</tool>{% else %}"
        "[{{ m.role }}]{{ m.content }}{% if m.tool_calls %}{% for c in m.tool_calls %}<call {{ c.function.name }}>"
        "{% endfor %}{% endif %}<|im_end|>{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    messages = [Message(role="tool", content=text, tool_call_id=str(n)) for n, text in enumerate("ab")]
    assert (
        text_of(ChatEncoder(tokenizer).continuation(messages, closed_by=EOS))
        == "<tool>a</tool><tool>b</tool>[assistant]"
    )


def test_tools_reach_the_template() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = "{% for t in tools or [] %}{{ t.function.name }};{% endfor %}" + str(
        tokenizer.chat_template
    )
    tool = ToolSpec.model_validate({"function": {"name": "look"}})
    assert text_of(ChatEncoder(tokenizer).prompt([Message(role="user", content="x")], [tool])).startswith("look;")


def test_earlier_thoughts_may_be_dropped_but_the_end_of_a_turn_may_not_change() -> None:
    drops_thoughts = byte_tokenizer()
    drops_thoughts.chat_template = (
        "{% for m in messages %}[{{ m.role }}]{% if loop.last and m.role == 'assistant' %}<think></think>{% endif %}"
        "{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    more = [Message(role="user", content="more")]
    assert text_of(ChatEncoder(drops_thoughts).continuation(more, closed_by=EOS)) == "[user]more<|im_end|>[assistant]"


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ m.role }}{% endfor %}",
        "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}",
        "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}",  # of vision models
        "{% for m in messages %}{% if m.role != 'user' %}{{ m.content }}{% endif %}{% endfor %}",
    ],
)
def test_a_template_that_leaves_out_what_was_said_is_refused(template: str) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(UnstableTemplate, match="leaves out"):
        ChatEncoder(tokenizer)


@pytest.mark.parametrize(
    ("name", "end", "begun"),
    [
        ("qwen2_5", "<|im_end|>", "\n<|im_start|>user\nm<|im_end|>\n<|im_start|>assistant\n"),
        ("qwen3", "<|im_end|>", "\n<|im_start|>user\nm<|im_end|>\n<|im_start|>assistant\n"),
        ("llama3_1", "<|eot_id|>", "<|start_header_id|>user<|end_header_id|>\n\nm<|eot_id|>"
                                   "<|start_header_id|>assistant<|end_header_id|>\n\n"),
        ("gemma3", "<end_of_turn>", "\n<start_of_turn>user\nm<end_of_turn>\n<start_of_turn>model\n"),
        ("phi3", "<|end|>", "\n<|user|>\nm<|end|>\n<|assistant|>\n"),
        ("glm4moe", "<|user|>", "\nm<|assistant|>"),
    ],
)  # fmt: skip
def test_turns_of_models_in_use_are_closed_once(name: str, end: str, begun: str) -> None:
    """Templates as they are published, each with the token by which its model ends a turn."""
    tokenizer = byte_tokenizer(tags=(end,))
    folder = Path(str(trl.__file__)).parent / "chat_templates"
    tokenizer.chat_template = (folder / f"{name}.jinja").read_text(encoding="utf-8")
    encoder = ChatEncoder(tokenizer)
    more = [Message(role="user", content="m")]  # a letter that tokens hold too
    (closed_by,) = tokenizer.encode(end)
    assert tokenizer.decode(encoder.continuation(more, closed_by)) == begun
    assert tokenizer.decode(encoder.continuation(more, None)) == end + begun


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("qwen3", "\n<|im_start|>user\n<tool_response>\n4\n</tool_response><|im_end|>\n<|im_start|>assistant\n"),
        ("llama3_1", '<|start_header_id|>ipython<|end_header_id|>\n\n"4"<|eot_id|>'
                     "<|start_header_id|>assistant<|end_header_id|>\n\n"),
        ("deepseekv3", "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>4<｜tool▁output▁end｜><｜tool▁outputs▁end｜>"),
        ("glm4moe", "<|observation|>\n<tool_response>\n4\n</tool_response><|assistant|>"),
        ("gemma3", None),  # knows no tools
        ("gemma4_v5", None),  # writes results before what was said
        ("cohere2", None),  # leaves them out
        ("phi3", None),
    ],
)  # fmt: skip
def test_templates_show_what_tools_give_back_or_are_refused_before_any_play(name: str, shown: str | None) -> None:
    tokenizer = byte_tokenizer()
    folder = Path(str(trl.__file__)).parent / "chat_templates"
    tokenizer.chat_template = (folder / f"{name}.jinja").read_text(encoding="utf-8")
    encoder = ChatEncoder(tokenizer)
    ask, tool = [Message(role="user", content="2 + 2?")], ToolSpec.model_validate({"function": {"name": "add"}})
    if shown is None:
        assert encoder.prompt(ask, [])
        with pytest.raises(UnstableTemplate, match="tools' results"):
            encoder.prompt(ask, [tool])
        return
    assert encoder.prompt(ask, [tool])
    result = [Message(role="tool", content="4", tool_call_id="call00001", name="add")]
    assert str(tokenizer.decode(encoder.continuation(result, None))).endswith(shown)


def test_inline_text_goes_on_in_the_open_turn() -> None:
    encoder = InlineEncoder(TOKENIZER)
    shown = [Message(role="user", content="<interpreter>4</interpreter>")]
    assert text_of(encoder.continuation(shown, closed_by=None)) == "<interpreter>4</interpreter>"
    assert text_of(encoder.continuation(shown, closed_by=EOS)) == (
        "\n<|im_start|>user\n<interpreter>4</interpreter><|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_word_tokenizer_is_lossless_on_its_words() -> None:
    tokenizer = word_tokenizer(["SELECT", "'paris'", "7"])
    assert tokenizer.decode(tokenizer.encode("SELECT 7 'paris'")) == "SELECT 7 'paris'"


# ---- vLLM -----------------------------------------------------------------------------------------------------------


class FakeVLLM:
    """TRL's generation object: each prompt of some length is answered by the next script line."""

    top_k, top_p, min_p = 0, 1.0, None
    max_completion_length = 99

    def __init__(self, *answers: list[int]) -> None:
        self.generation_kwargs: dict[str, Any] = {"seed": 1}
        self.answers = list(answers)
        self.calls: list[dict[str, Any]] = []

    def generate(self, prompts: list[list[int]], images: None, num_generations: int) -> Any:
        assert num_generations == 1
        self.calls.append(
            {"prompts": prompts, "max_tokens": self.max_completion_length, "kwargs": dict(self.generation_kwargs)}
        )
        ids = [self.answers.pop(0) for _ in prompts]
        return prompts, ids, [[[-0.25] for _ in row] for row in ids], None


def vllm(fake: FakeVLLM, **settings: Any) -> VLLMGenerator:
    return VLLMGenerator(fake, TOKENIZER, ChatEncoder(TOKENIZER), **settings)


def test_vllm_rows_keep_their_ids_and_ended_rows_send_dummies() -> None:
    a, b, code = TOKENIZER.encode("a")[0], TOKENIZER.encode("b")[0], TOKENIZER.encode("</code>")[0]
    fake = FakeVLLM([a, EOS], [b, code], [a, a, a], [b])
    batch = vllm(fake, stop_tags=["</code>"]).begin(conversations([3, 5]))
    first = batch.generate({0: 10, 1: 20})
    assert [(first[row].action, first[row].complete) for row in (0, 1)] == [("a", True), ("b</code>", True)]
    batch.reply(0, [Message(role="user", content="go on")], room=99)
    second = batch.generate({0: 2})
    assert (second[0].action, second[0].complete, second[0].tokens) == (
        "aa",
        False,
        2,
    )  # its own budget, not the call's
    batch.close()
    assert [call["max_tokens"] for call in fake.calls] == [20, 2]
    assert fake.calls[1]["prompts"] == [batch.trace(0).ids_from(0)[:-2], [EOS]]
    assert fake.calls[0]["kwargs"] == {"seed": 1, "stop": ["</code>"], "include_stop_str_in_output": True}
    assert (fake.max_completion_length, fake.generation_kwargs) == (99, {"seed": 1})
    assert batch.trace(1).logprobs_T == [-0.25, -0.25]


def test_every_process_calls_as_often_as_the_busiest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process wants two turns more than this one: this one goes on with dummies until nobody wants any."""
    others = iter([[7], [30], [0]])
    monkeypatch.setattr("rolloutgym.training.generators.vllm.gather_object", lambda mine: mine + next(others))
    fake = FakeVLLM([EOS], [EOS])
    batch = vllm(fake).begin(conversations([3]))
    batch.generate({0: 5})
    batch.close()
    assert [call["max_tokens"] for call in fake.calls] == [7, 30]
    assert fake.calls[1]["prompts"] == [[EOS]]
    assert next(others, None) is None


@pytest.mark.parametrize("filters", [{"top_k": 5}, {"top_p": 0.9}, {"min_p": 0.1}])
def test_filters_that_bend_vllms_logprobs_are_refused(filters: dict[str, float]) -> None:
    fake = FakeVLLM()
    for name, value in filters.items():
        setattr(fake, name, value)
    with pytest.raises(ValueError, match="log-probabilities"):
        vllm(fake)
