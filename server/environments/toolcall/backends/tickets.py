"""A help desk's tickets."""

from typing import ClassVar

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.backends.domain import (
    Domain,
    Record,
    ToolError,
    add,
    choice,
    find,
    identifier,
    text,
    tool,
)

PRIORITIES = ("low", "normal", "high", "urgent")
STATUSES = ("open", "waiting", "closed")


class Ticket(Record):
    title: str
    priority: str
    status: str
    assignee: str | None


class TicketsState(Record):
    tickets: dict[str, Ticket]
    agents: list[str]
    """First names."""


class Tickets(Domain[TicketsState]):
    name: ClassVar[str] = "tickets"
    state_type: ClassVar[type[Record]] = TicketsState

    @tool(
        "List tickets, by status and, if given, priority.",
        status=choice("Status of the tickets wanted.", *STATUSES),
        priority=choice("Only tickets of this priority.", *PRIORITIES),
    )
    def search_tickets(self, status: str, priority: str | None = None) -> JsonValue:
        found: list[JsonValue] = [
            self._shown(id, ticket)
            for id, ticket in sorted(self.state.tickets.items(), key=lambda pair: pair[0])
            if ticket.status == status and priority in (None, ticket.priority)
        ]
        return {"tickets": found[:20]}

    @tool("Everything about one ticket.", ticket_id=identifier("The ticket."))
    def get_ticket(self, ticket_id: str) -> JsonValue:
        return self._shown(ticket_id, self._ticket(ticket_id))

    @tool(
        "Open a new ticket.",
        title=text("Its title, word for word."),
        priority=choice("How pressing it is.", *PRIORITIES),
    )
    def create_ticket(self, title: str, priority: str = "normal") -> JsonValue:
        ticket = Ticket(title=title, priority=priority, status="open", assignee=None)
        return self._shown(add(self.state.tickets, "tic", ticket), ticket)

    @tool(
        "Give a ticket to an agent of the help desk.",
        ticket_id=identifier("The ticket."),
        agent=text("The agent's first name."),
    )
    def assign_ticket(self, ticket_id: str, agent: str) -> JsonValue:
        ticket = self._ticket(ticket_id)
        if agent not in self.state.agents:
            raise ToolError(f"there is no agent '{agent[:60]}'; there are {', '.join(self.state.agents)}")
        ticket.assignee = agent
        return {"ticket_id": ticket_id, "assignee": agent}

    @tool(
        "Set the status of a ticket.",
        ticket_id=identifier("The ticket."),
        status=choice("Its new status.", *STATUSES),
    )
    def set_ticket_status(self, ticket_id: str, status: str) -> JsonValue:
        self._ticket(ticket_id).status = status
        return {"ticket_id": ticket_id, "status": status}

    def _ticket(self, id: str) -> Ticket:
        return find(self.state.tickets, id, "ticket")

    def _shown(self, id: str, ticket: Ticket) -> dict[str, JsonValue]:
        return {"ticket_id": id, **ticket.model_dump()}
