import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolloutgym.models import FunctionCall, Message, ToolCall
from rolloutgym.server.environments.toolcall.importers.conversation import Unplayable, role_of
from rolloutgym.server.environments.toolcall.scenarios import ROLES, classify

CALL = (ToolCall(function=FunctionCall(name="f", arguments={})),)
LETTERS = {
    "S": Message(role="system", content="s"),
    "U": Message(role="user", content="u"),
    "A": Message(role="assistant", content="a"),
    "C": Message(role="assistant", tool_calls=CALL),
    "T": Message(role="tool", content="t"),
}


def conversation(letters: str) -> list[Message]:
    """S system, U user, A assistant without and C with a call, T tool."""
    return [LETTERS[letter] for letter in letters]


@pytest.mark.parametrize(
    ("letters", "scenario"),
    [
        ("", "relevance"),
        ("SU", "relevance"),
        ("SUA", "relevance"),
        ("UAUA", "relevance"),
        ("SUC", "single"),
        ("SUCT", "single"),
        ("SUCTTTA", "single"),  # several responses to parallel calls
        ("SUAUACTA", "single"),  # talk before the call, and a sentence as a message of its own
        ("SUACCTTA", "single"),  # calls of one turn in two messages
        ("SUCTCT", "multistep"),
        ("SUCTTCTTA", "multistep"),
        ("SUCTACTA", "multistep"),  # narration between the calls
        ("SUCTACTASCTA", "multistep"),
        ("SUCTAU", "multiturn"),  # the user has the last word
        ("SUCTAUA", "multiturn"),
        ("SUCTUCT", "multiturn"),
        ("SUCTAUCTA", "multiturn"),
        ("CU", "multiturn"),
    ],
)
def test_scenario_of_a_conversation(letters: str, scenario: str) -> None:
    assert classify(conversation(letters)) == scenario


@settings(deadline=None)
@given(st.text(alphabet="SUACT", max_size=12))
def test_talk_of_the_assistant_changes_nothing(letters: str) -> None:
    quiet = letters.replace("A", "")
    expected = classify(conversation(letters))
    # Without the talk, two calling messages may fall together into one turn: only that may change.
    if "CC" not in quiet or "CC" in letters:
        assert classify(conversation(quiet)) == expected
    assert (expected == "relevance") == ("C" not in letters)
    assert (expected == "multiturn") == ("U" in letters[letters.find("C") :] and "C" in letters)


@pytest.mark.parametrize("alias", ["human", "user", "gpt", "assistant", "Assistant", "function", "observation", "tool"])
def test_role_aliases(alias: str) -> None:
    assert role_of(alias) == ROLES[alias.lower()]


@pytest.mark.parametrize("alias", ["", "narrator", None, 3])
def test_unknown_role(alias: object) -> None:
    with pytest.raises(Unplayable, match="unknown role"):
        role_of(alias)
