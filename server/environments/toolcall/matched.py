"""An episode that holds each reply against the calls that the data set expects at that turn."""

from rolloutgym.models import Message, StopReason
from rolloutgym.server.environments.base import Outcome
from rolloutgym.server.environments.toolcall import responses
from rolloutgym.server.environments.toolcall.episode import ToolCallEpisode
from rolloutgym.server.environments.toolcall.items import Item
from rolloutgym.server.environments.toolcall.options import ToolCallOptions
from rolloutgym.server.environments.toolcall.parsing import Reply
from rolloutgym.server.environments.toolcall.rewards import Ending, TurnResult, score_turn, turn_weights, unanswered


class MatchedEpisode(ToolCallEpisode):
    def __init__(self, item: Item, options: ToolCallOptions) -> None:
        super().__init__(item, options)
        self._weights = turn_weights([planned.turn for planned in self.plan.turns], self.scoring)

    def take(self, reply: Reply) -> Outcome:
        planned = self.plan.turns[len(self.results)]
        result = score_turn(reply, planned.turn, self.schemas, self.scoring)
        self.results.append(result)
        ending, stop_reason = self._ending(result)
        return self.outcome(
            self._weights,
            ending,
            reply=reply,
            pairs=result.pairs,
            turn_score=result.score,
            messages=self._follow_up(planned.then, reply, result) if ending is Ending.RUNNING else (),
            success=None if ending is Ending.RUNNING else self._success(ending),
            stop_reason=stop_reason,
        )

    async def truncate(self, reason: StopReason) -> Outcome:
        self.results.append(unanswered(self.scoring))
        return self.outcome(
            self._weights,
            Ending.STOPPED,
            turn_score=self.results[-1].score,
            success=False,
            stop_reason=reason,
            truncated=True,
        )

    def _ending(self, result: TurnResult) -> tuple[Ending, StopReason | None]:
        if not result.perfect and self.options.on_mismatch == "stop":
            return Ending.STOPPED, StopReason.MISMATCH
        if len(self.results) == len(self.plan.turns):
            return Ending.COMPLETED, StopReason.COMPLETED
        return Ending.RUNNING, None

    def _success(self, ending: Ending) -> bool:
        return ending is Ending.COMPLETED and all(result.perfect for result in self.results)

    def _follow_up(self, then: tuple[Message, ...], reply: Reply, result: TurnResult) -> tuple[Message, ...]:
        if not result.perfect and self.options.on_mismatch == "continue_with_model":
            return responses.own(then, reply, result.pairs)
        return responses.recorded(then, reply, result.pairs)
