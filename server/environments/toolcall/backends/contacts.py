"""An address book, and messages to the people in it."""

from typing import ClassVar

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.backends.domain import (
    Domain,
    Record,
    ToolError,
    identifier,
    text,
    tool,
    whole,
)

PHONE = {"type": "string", "description": "Telephone number, digits and dashes.", "pattern": r"\+?[0-9-]{5,20}"}


class Contacts(Domain):
    """State: contacts {id: {name, phone, email}}, messages {id: {contact_id, text}}."""

    name: ClassVar[str] = "contacts"

    @tool("Find people in the address book by name or part of it.", name=text("Name or part of it."))
    def find_contact(self, name: str) -> JsonValue:
        wanted = name.casefold()
        found = [(id, who) for id, who in self.records("contacts").items() if wanted in who["name"].casefold()]
        return {"contacts": [self._shown(id, who) for id, who in sorted(found, key=lambda pair: pair[0])[:10]]}

    @tool(
        "Add a person to the address book.",
        name=text("Full name."),
        phone=PHONE,
        email=text("E-mail address."),
    )
    def add_contact(self, name: str, phone: str, email: str | None = None) -> JsonValue:
        if any(who["name"].casefold() == name.casefold() for who in self.records("contacts").values()):
            raise ToolError(f"'{name}' is already in the address book")
        who = {"name": name, "phone": phone, "email": email}
        return {"status": "added", **self._shown(self.add("contacts", "con", who), who)}

    @tool("Change a person's telephone number.", contact_id=identifier("The person."), phone=PHONE)
    def update_phone(self, contact_id: str, phone: str) -> JsonValue:
        who = self.get("contacts", contact_id)
        who["phone"] = phone
        return {"status": "updated", **self._shown(contact_id, who)}

    @tool(
        "Send a text message to a person in the address book.",
        contact_id=identifier("The person."),
        text=text("The message, word for word.", 1000),
    )
    def send_message(self, contact_id: str, text: str) -> JsonValue:
        name = self.get("contacts", contact_id)["name"]
        id = self.add("messages", "msg", {"contact_id": contact_id, "text": text, "from_me": True})
        return {"status": "sent", "message_id": id, "to": name}

    @tool(
        "List the messages exchanged with a person.",
        contact_id=identifier("The person."),
        limit=whole("How many at most.", 1, 20),
    )
    def list_messages(self, contact_id: str, limit: int = 10) -> JsonValue:
        self.get("contacts", contact_id)
        found = [(id, m) for id, m in sorted(self.records("messages").items()) if m["contact_id"] == contact_id]
        return {
            "messages": [
                {"message_id": id, "from_me": message["from_me"], "text": message["text"]}
                for id, message in found[:limit]
            ]
        }

    def _shown(self, id: str, who: Record) -> dict[str, JsonValue]:
        return {"contact_id": id, "name": who["name"], "phone": who["phone"], "email": who["email"]}
