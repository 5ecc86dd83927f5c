"""An address book, and messages to the people in it."""

from typing import ClassVar

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.backends.domain import (
    Domain,
    Record,
    ToolError,
    add,
    find,
    identifier,
    text,
    tool,
    whole,
)

PHONE = {"type": "string", "description": "Telephone number, digits and dashes.", "pattern": r"\+?[0-9-]{5,20}"}


class Contact(Record):
    name: str
    phone: str
    email: str | None


class TextMessage(Record):
    contact_id: str
    text: str
    from_me: bool


class ContactsState(Record):
    contacts: dict[str, Contact]
    messages: dict[str, TextMessage]


class Contacts(Domain[ContactsState]):
    name: ClassVar[str] = "contacts"
    state_type: ClassVar[type[Record]] = ContactsState

    @tool("Find people in the address book by name or part of it.", name=text("Name or part of it."))
    def find_contact(self, name: str) -> JsonValue:
        wanted = name.casefold()
        found = [(id, who) for id, who in sorted(self.state.contacts.items(), key=_id) if wanted in who.name.casefold()]
        return {"contacts": [self._shown(id, who) for id, who in found[:10]]}

    @tool(
        "Add a person to the address book.",
        name=text("Full name."),
        phone=PHONE,
        email=text("E-mail address."),
    )
    def add_contact(self, name: str, phone: str, email: str | None = None) -> JsonValue:
        if any(who.name.casefold() == name.casefold() for who in self.state.contacts.values()):
            raise ToolError(f"'{name}' is already in the address book")
        who = Contact(name=name, phone=phone, email=email)
        return {"status": "added", **self._shown(add(self.state.contacts, "con", who), who)}

    @tool("Change a person's telephone number.", contact_id=identifier("The person."), phone=PHONE)
    def update_phone(self, contact_id: str, phone: str) -> JsonValue:
        who = find(self.state.contacts, contact_id, "contact")
        who.phone = phone
        return {"status": "updated", **self._shown(contact_id, who)}

    @tool(
        "Send a text message to a person in the address book.",
        contact_id=identifier("The person."),
        text=text("The message, word for word.", 1000),
    )
    def send_message(self, contact_id: str, text: str) -> JsonValue:
        name = find(self.state.contacts, contact_id, "contact").name
        id = add(self.state.messages, "msg", TextMessage(contact_id=contact_id, text=text, from_me=True))
        return {"status": "sent", "message_id": id, "to": name}

    @tool(
        "List the messages exchanged with a person.",
        contact_id=identifier("The person."),
        limit=whole("How many at most.", 1, 20),
    )
    def list_messages(self, contact_id: str, limit: int = 10) -> JsonValue:
        find(self.state.contacts, contact_id, "contact")
        found = [(id, m) for id, m in sorted(self.state.messages.items(), key=_id) if m.contact_id == contact_id]
        return {
            "messages": [
                {"message_id": id, "from_me": message.from_me, "text": message.text} for id, message in found[:limit]
            ]
        }

    def _shown(self, id: str, who: Contact) -> dict[str, JsonValue]:
        return {"contact_id": id, "name": who.name, "phone": who.phone, "email": who.email}


def _id(pair: tuple[str, Record]) -> str:
    return pair[0]
