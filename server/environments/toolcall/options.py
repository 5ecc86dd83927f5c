"""What a reset may ask of the toolcall environment. The defaults add nothing to a data set's own conversation."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from rolloutgym.server.environments.base import Options
from rolloutgym.server.environments.toolcall.equality import Strings
from rolloutgym.server.environments.toolcall.matching import ExtraArguments
from rolloutgym.server.environments.toolcall.parsing import Family, ParseOptions
from rolloutgym.server.environments.toolcall.rewards import Preset, Scoring

OnMismatch = Literal["stop", "continue_with_gold", "continue_with_model"]


class FewShot(BaseModel):
    """A reply that was right on another task, shown as an example."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    task_id: str
    """Never the episode's own task, nor one of its group."""
    reply: Annotated[str, Field(min_length=1, max_length=20_000)]


class ToolCallOptions(Options):
    # -- reward
    preset: Preset = "exact"
    """What a turn is worth: `seed`, `exact`, `subset`, `bfcl`, `f1` or `toolrl`."""
    success_bonus: Annotated[FiniteFloat, Field(ge=0)] = 0.5
    """λ: added when all turns are perfect."""
    stop_penalty: Annotated[FiniteFloat, Field(le=0)] = -0.2
    """p: added when the episode stops early."""
    format_penalty: Annotated[FiniteFloat, Field(le=0)] = 0.0
    """ρ: added once when a reply breaks its form."""
    weights: Literal["calls", "turns"] = "calls"
    """A turn weighs as many as the calls it expects, or 1 (preset `seed`: always its calls)."""
    seed_floor: bool = True
    """Preset `seed`: an episode with R ≤ 0 gets −1."""
    toolrl_normalized: bool = False
    """Preset `toolrl`: turns in [0, 1] instead of [−3, 4]."""
    on_mismatch: OnMismatch = "stop"
    """After a turn that is not perfect: end the episode, go on with the recorded tool responses, or go on with answers
    to the calls that the model made."""

    # -- matching
    strings: Strings = "exact"
    """How text arguments are compared."""
    extra_arguments: ExtraArguments | None = None
    """Arguments beyond the expected that cost nothing; null is the preset's own rule."""
    defaults_equal: bool = True
    """An argument at its schema's default may be given or left out, on either side."""

    # -- parsing
    family: Family | Literal["auto"] = "auto"
    """In which form the model writes calls."""
    think: Literal["required", "optional", "forbidden"] = "optional"
    """Whether a reply must begin with one closed reasoning block."""
    prefilled_think: bool = False
    """The prompt already opened the reasoning block."""
    think_tags: tuple[Annotated[str, Field(min_length=1)], Annotated[str, Field(min_length=1)]] | None = None
    """The reasoning block's tags; null knows those of the families."""
    calls_in_think: Literal["ignore", "error", "accept"] = "ignore"
    """Calls in the reasoning are drafts, or spoil the reply, or count where none follows the reasoning."""

    # -- turns
    generate_all_turns: bool = False
    """Let the model write the narration turns too; they are judged: text, and no call."""
    max_tool_turns: Annotated[int, Field(ge=1)] | None = None
    """Keep this many calling turns, and the narration after the last."""
    execute: bool = False
    """Run the calls on the item's back end and judge the final state, whatever the path."""
    max_steps_per_turn: Annotated[int, Field(ge=1, le=1000)] = 20
    """With `execute`: replies that may call before one of plain text, per user message."""

    # -- prompt
    think_prompt: bool = False
    """Ask for reasoning between tags, in the system message."""
    tools_in_prompt: bool = False
    """Write the tools into the system message, for models whose chat template does not show them."""
    one_at_a_time: bool = False
    """Ask for one call per message."""
    example: bool = False
    """Show a fixed example of a good reply."""
    few_shot: FewShot | None = None
    """Show this reply of another task instead."""

    @model_validator(mode="after")
    def _whole_dialogue_if_executed(self) -> "ToolCallOptions":
        if self.execute and self.max_tool_turns is not None:
            raise ValueError("execute plays the whole dialogue: give no max_tool_turns")
        return self

    @property
    def parsing(self) -> ParseOptions:
        return ParseOptions(
            family=self.family,
            think=self.think,
            prefilled_think=self.prefilled_think,
            think_tags=self.think_tags,
            calls_in_think=self.calls_in_think,
        )

    @property
    def scoring(self) -> Scoring:
        return Scoring(
            preset=self.preset,
            success_bonus=self.success_bonus,
            stop_penalty=self.stop_penalty,
            format_penalty=self.format_penalty,
            weights=self.weights,
            seed_floor=self.seed_floor,
            toolrl_normalized=self.toolrl_normalized,
            strings=self.strings,
            extra_arguments=self.extra_arguments,
            defaults_equal=self.defaults_equal,
        )
