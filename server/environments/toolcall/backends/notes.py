"""Notes and reminders."""

from typing import ClassVar

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.backends.domain import (
    CLOCK,
    DAY,
    Domain,
    Record,
    ToolError,
    add,
    checked_day,
    find,
    identifier,
    minutes_of,
    text,
    tool,
)

MAX_NOTE = 5000
"""Longest note, characters: appending ends there."""


class Note(Record):
    title: str
    text: str


class Reminder(Record):
    text: str
    date: str
    time: str


class NotesState(Record):
    notes: dict[str, Note]
    reminders: dict[str, Reminder]


class Notes(Domain[NotesState]):
    name: ClassVar[str] = "notes"
    state_type: ClassVar[type[Record]] = NotesState

    @tool("Write a new note.", title=text("Its title."), text=text("What it says, word for word.", 2000))
    def create_note(self, title: str, text: str) -> JsonValue:
        return {
            "status": "created",
            "note_id": add(self.state.notes, "not", Note(title=title, text=text)),
            "title": title,
        }

    @tool("Find notes whose title or text has a word.", keyword=text("The word.", 60))
    def search_notes(self, keyword: str) -> JsonValue:
        wanted = keyword.casefold()
        found: list[JsonValue] = [
            {"note_id": id, "title": note.title}
            for id, note in sorted(self.state.notes.items(), key=lambda pair: pair[0])
            if wanted in note.title.casefold() or wanted in note.text.casefold()
        ]
        return {"notes": found[:10]}

    @tool("The text of a note.", note_id=identifier("The note."))
    def read_note(self, note_id: str) -> JsonValue:
        return {"note_id": note_id, **self._note(note_id).model_dump()}

    @tool(
        "Add a line at the end of a note.",
        note_id=identifier("The note."),
        line=text("What to add, word for word.", 500),
    )
    def append_to_note(self, note_id: str, line: str) -> JsonValue:
        note = self._note(note_id)
        if len(note.text) + len(line) >= MAX_NOTE:
            raise ToolError("the note is full")
        note.text += "\n" + line
        return {"status": "added", "note_id": note_id}

    @tool("Delete a note for good.", note_id=identifier("The note."))
    def delete_note(self, note_id: str) -> JsonValue:
        self._note(note_id)
        del self.state.notes[note_id]
        return {"status": "deleted", "note_id": note_id}

    @tool("Set a reminder.", text=text("What to be reminded of, word for word."), date=DAY, time=CLOCK)
    def set_reminder(self, text: str, date: str, time: str) -> JsonValue:
        minutes_of(time)
        reminder = Reminder(text=text, date=checked_day(date), time=time)
        return {"status": "set", "reminder_id": add(self.state.reminders, "rem", reminder)}

    def _note(self, id: str) -> Note:
        return find(self.state.notes, id, "note")
