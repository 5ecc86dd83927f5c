"""What a reset of the SQL environment may ask for."""

from pydantic import Field

from rolloutgym.server.environments.base import Options
from rolloutgym.server.environments.sql.answers import AnswerOptions
from rolloutgym.server.environments.sql.formatting import Caps
from rolloutgym.server.environments.sql.prompts import ActionFormat, AnswerMode, Dialect
from rolloutgym.server.environments.sql.rewards import Preset


class SqlOptions(Options):
    """How an episode is played, shown and judged."""

    budget: int = Field(default=15, ge=1, le=200)
    """Steps in all; the answer is one of them, and so is an action that cannot be understood."""
    reward: Preset = "shaped"
    """`shaped`: the answer, small costs, and potential-based shaping, which credits single steps and sums to zero over
    an episode (a trainer of whole returns finds how near it came in `info.progress`). `sparse`: 1 for a right answer,
    else 0. `sqlenv`: execution, new information, progress and answer in layers, as SQLEnv has them."""
    action_format: ActionFormat = "text"
    """What the system prompt teaches: actions as text, or as tool calls. Both are always understood."""
    answer: AnswerMode = "value"
    """Whether ANSWER gives the value itself, or SQL whose result is judged."""
    dialect: Dialect = "sqlite"
    """What SQL the agent writes, in QUERY and in an answer in SQL; it is translated to SQLite before it runs."""
    evidence: bool = True
    """Show the task's hint (BIRD's evidence), where it has one."""
    include_empty: bool = False
    """Allow tasks whose gold result has no rows: `[]`, or SQL that finds nothing, answers them."""
    fold_case: bool = False
    """Text in answers is equal in any case."""
    any_columns: bool = False
    """The columns of an answer may come in any order."""
    max_rows: int = Field(default=20, ge=1, le=1_000)
    """Rows of a result that are shown."""
    max_cells: int = Field(default=500, ge=1, le=20_000)
    """Cells of a result that are shown."""
    max_bytes: int = Field(default=8_000, ge=200, le=200_000)
    """Bytes of a result that are shown."""
    max_cell_characters: int = Field(default=200, ge=10, le=10_000)
    """Characters of a cell that are shown."""

    def caps(self) -> Caps:
        return Caps(self.max_rows, self.max_cells, self.max_bytes, self.max_cell_characters)

    def answers(self) -> AnswerOptions:
        return AnswerOptions(fold_case=self.fold_case, any_columns=self.any_columns, accept_empty=self.include_empty)
