"""A day planner."""

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
    clock_of,
    find,
    identifier,
    minutes_of,
    text,
    tool,
    whole,
)

DAY_START, DAY_END = 9 * 60, 18 * 60
"""Working hours, within which free time is looked for; minutes since midnight."""


class Event(Record):
    title: str
    date: str
    start: str
    minutes: int


class CalendarState(Record):
    events: dict[str, Event]


class Calendar(Domain[CalendarState]):
    name: ClassVar[str] = "calendar"
    state_type: ClassVar[type[Record]] = CalendarState

    @tool("List the events of one day, earliest first.", date=DAY)
    def list_events(self, date: str) -> JsonValue:
        return {"date": checked_day(date), "events": [self._shown(id, event) for id, event in self._on(date)]}

    @tool(
        "Put a new event into the calendar. Refused if it overlaps another one.",
        title=text("What the event is called."),
        date=DAY,
        start=CLOCK,
        duration_minutes=whole("Length in minutes.", 5, 720),
    )
    def create_event(self, title: str, date: str, start: str, duration_minutes: int = 60) -> JsonValue:
        event = Event(title=title, date=checked_day(date), start=start, minutes=duration_minutes)
        self._refuse_overlap(event, but=None)
        id = add(self.state.events, "evt", event)
        return {"status": "created", **self._shown(id, event)}

    @tool(
        "Move an event to another day or time; its length stays.",
        event_id=identifier("The event."),
        date=DAY,
        start=CLOCK,
    )
    def reschedule_event(self, event_id: str, date: str, start: str) -> JsonValue:
        event = find(self.state.events, event_id, "event")
        moved = event.model_copy(update={"date": checked_day(date), "start": start})
        self._refuse_overlap(moved, but=event_id)
        self.state.events[event_id] = moved
        return {"status": "moved", **self._shown(event_id, moved)}

    @tool("Take an event out of the calendar.", event_id=identifier("The event."))
    def cancel_event(self, event_id: str) -> JsonValue:
        title = find(self.state.events, event_id, "event").title
        del self.state.events[event_id]
        return {"status": "cancelled", "event_id": event_id, "title": title}

    @tool(
        "The first free time of a working day (09:00 to 18:00) that is long enough.",
        date=DAY,
        duration_minutes=whole("Length needed, in minutes.", 5, 540),
    )
    def find_free_time(self, date: str, duration_minutes: int) -> JsonValue:
        start = DAY_START
        for _, event in self._on(checked_day(date)):
            if minutes_of(event.start) - start >= duration_minutes:
                break
            start = max(start, minutes_of(event.start) + event.minutes)
        if start + duration_minutes > DAY_END:
            return {"date": date, "start": None}
        return {"date": date, "start": clock_of(start)}

    def _on(self, date: str) -> list[tuple[str, Event]]:
        events = [(id, event) for id, event in self.state.events.items() if event.date == date]
        return sorted(events, key=lambda pair: (pair[1].start, pair[0]))

    def _refuse_overlap(self, event: Event, but: str | None) -> None:
        start = minutes_of(event.start)
        end = start + event.minutes
        if end > 24 * 60:
            raise ToolError("an event ends on the day it starts")
        for id, other in self._on(event.date):
            begun = minutes_of(other.start)
            if id != but and begun < end and start < begun + other.minutes:
                raise ToolError(f"overlaps '{other.title}' at {other.start}")

    def _shown(self, id: str, event: Event) -> dict[str, JsonValue]:
        return {
            "event_id": id,
            "title": event.title,
            "date": event.date,
            "start": event.start,
            "duration_minutes": event.minutes,
        }
