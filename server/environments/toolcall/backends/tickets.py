"""A help desk's tickets."""

from typing import ClassVar

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.backends.domain import (
    Domain,
    Record,
    ToolError,
    choice,
    identifier,
    text,
    tool,
)

PRIORITIES = ("low", "normal", "high", "urgent")
STATUSES = ("open", "waiting", "closed")


class Tickets(Domain):
    """State: tickets {id: {title, priority, status, assignee}}, agents [name]."""

    name: ClassVar[str] = "tickets"

    @tool(
        "List tickets, by status and, if given, priority.",
        status=choice("Status of the tickets wanted.", *STATUSES),
        priority=choice("Only tickets of this priority.", *PRIORITIES),
    )
    def search_tickets(self, status: str, priority: str | None = None) -> JsonValue:
        found = [
            self._shown(id, ticket)
            for id, ticket in sorted(self.records("tickets").items())
            if ticket["status"] == status and priority in (None, ticket["priority"])
        ]
        return {"tickets": list(found[:20])}

    @tool("Everything about one ticket.", ticket_id=identifier("The ticket."))
    def get_ticket(self, ticket_id: str) -> JsonValue:
        return self._shown(ticket_id, self.get("tickets", ticket_id))

    @tool(
        "Open a new ticket.",
        title=text("Its title, word for word."),
        priority=choice("How pressing it is.", *PRIORITIES),
    )
    def create_ticket(self, title: str, priority: str = "normal") -> JsonValue:
        ticket = {"title": title, "priority": priority, "status": "open", "assignee": None}
        return self._shown(self.add("tickets", "tic", ticket), ticket)

    @tool(
        "Give a ticket to an agent of the help desk.",
        ticket_id=identifier("The ticket."),
        agent=text("The agent's first name."),
    )
    def assign_ticket(self, ticket_id: str, agent: str) -> JsonValue:
        ticket = self.get("tickets", ticket_id)
        if agent not in self.state["agents"]:
            raise ToolError(f"there is no agent '{agent[:60]}'; there are {', '.join(self.state['agents'])}")
        ticket["assignee"] = agent
        return {"ticket_id": ticket_id, "assignee": agent}

    @tool(
        "Set the status of a ticket.",
        ticket_id=identifier("The ticket."),
        status=choice("Its new status.", *STATUSES),
    )
    def set_ticket_status(self, ticket_id: str, status: str) -> JsonValue:
        self.get("tickets", ticket_id)["status"] = status
        return {"ticket_id": ticket_id, "status": status}

    def _shown(self, id: str, ticket: Record) -> dict[str, JsonValue]:
        return {"ticket_id": id, **ticket}
