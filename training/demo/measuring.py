"""What the demonstrations share: how the tiny model reads a conversation, and how it is measured on held-out tasks."""

from collections.abc import Mapping, Sequence

from pydantic import JsonValue
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from rolloutgym.training.demo.games import Game
from rolloutgym.training.generators.transformers import TransformersGenerator, evaluation_mode
from rolloutgym.training.rollouts import Limits, Rollout, Task, play_batch
from rolloutgym.training.sampling import SamplingParams
from rolloutgym.training.service import RemoteEnvironment
from rolloutgym.training.tiny import END_OF_TURN, START_OF_TURN

# The tiny model does not read the system message: what it says, the demonstrations show.
TEMPLATE = (
    "{% for message in messages %}{% if message['role'] != 'system' %}"
    f"{START_OF_TURN}{{{{ message['role'] }}}} {{{{ message['content'] }}}}{END_OF_TURN}"
    "{% endif %}{% endfor %}"
    f"{{% if add_generation_prompt %}}{START_OF_TURN}assistant {{% endif %}}"
)
_AT_ONCE = 100


def play_all(
    environment: RemoteEnvironment,
    game: Game,
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    task_ids: Sequence[str],
    sampling: SamplingParams,
    limits: Limits,
    options: Mapping[str, JsonValue],
) -> list[Rollout]:
    """One episode of each task."""
    generator = TransformersGenerator(model, tokenizer, sampling, stop_tags=game.stop_tags, seed=0)
    rollouts: list[Rollout] = []
    with evaluation_mode(model):
        for start in range(0, len(task_ids), _AT_ONCE):
            some = task_ids[start : start + _AT_ONCE]
            tasks = [Task(task_id=task_id, seed=0, options=options) for task_id in some]
            rollouts += play_batch(environment, tasks, generator, limits)
    return rollouts


def solve_rate(rollouts: Sequence[Rollout]) -> float:
    return sum(bool(rollout.success) for rollout in rollouts) / len(rollouts)


def looked_rate(rollouts: Sequence[Rollout], game: Game) -> float:
    """Share of episodes in which the model looked before it answered."""
    looked = [
        any(game.looked in message.content for message in rollout.transcript if message.role == "assistant")
        for rollout in rollouts
    ]
    return sum(looked) / len(looked)
