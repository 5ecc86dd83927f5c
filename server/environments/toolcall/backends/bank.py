"""A bank customer's accounts and cards. Money is kept in cents."""

from typing import ClassVar, Literal

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.backends.domain import (
    Domain,
    Record,
    ToolError,
    add,
    cents,
    choice,
    find,
    identifier,
    number,
    tool,
    whole,
)


class Account(Record):
    kind: str
    cents: int


class Card(Record):
    account_id: str
    status: Literal["active", "frozen"]


class Transaction(Record):
    account_id: str
    cents: int
    other: str
    """Account or shop on the other side."""


class BankState(Record):
    accounts: dict[str, Account]
    cards: dict[str, Card]
    transactions: dict[str, Transaction]


class Bank(Domain[BankState]):
    name: ClassVar[str] = "bank"
    state_type: ClassVar[type[Record]] = BankState

    @tool("List the customer's accounts.")
    def list_accounts(self) -> JsonValue:
        accounts = self.state.accounts
        return {"accounts": [{"account_id": id, "kind": accounts[id].kind} for id in sorted(accounts)]}

    @tool("The balance of one account, in euros.", account_id=identifier("The account."))
    def get_balance(self, account_id: str) -> JsonValue:
        return {"account_id": account_id, "balance": self._account(account_id).cents / 100}

    @tool(
        "Move money between two of the customer's accounts. Refused without enough money.",
        from_account=identifier("Account that pays."),
        to_account=identifier("Account that receives."),
        amount=number("Euros, at most two decimals.", 0.01, 1_000_000),
    )
    def transfer_money(self, from_account: str, to_account: str, amount: float) -> JsonValue:
        payer, payee = self._account(from_account), self._account(to_account)
        if from_account == to_account:
            raise ToolError("the two accounts are the same")
        moved = cents(amount)
        if payer.cents < moved:
            raise ToolError(f"account {from_account} holds only {payer.cents / 100:.2f}")
        for account, signed, other in ((from_account, -moved, to_account), (to_account, moved, from_account)):
            add(self.state.transactions, "trx", Transaction(account_id=account, cents=signed, other=other))
        payer.cents -= moved
        payee.cents += moved
        return {"status": "done", "amount": moved / 100, "new_balance": payer.cents / 100}

    @tool(
        "List an account's transactions; negative amounts were paid out.",
        account_id=identifier("The account."),
        limit=whole("How many at most.", 1, 50),
    )
    def list_transactions(self, account_id: str, limit: int = 10) -> JsonValue:
        self._account(account_id)
        entries = self.state.transactions
        found = [id for id in sorted(entries) if entries[id].account_id == account_id]
        return {
            "transactions": [
                {"transaction_id": id, "amount": entries[id].cents / 100, "with": entries[id].other}
                for id in found[:limit]
            ]
        }

    @tool("List the customer's cards and whether they work.")
    def list_cards(self) -> JsonValue:
        cards = self.state.cards
        return {"cards": [{"card_id": id, **cards[id].model_dump()} for id in sorted(cards)]}

    @tool(
        "Freeze a card, or make a frozen card work again.",
        card_id=identifier("The card."),
        status=choice("What the card shall be.", "active", "frozen"),
    )
    def set_card_status(self, card_id: str, status: Literal["active", "frozen"]) -> JsonValue:
        find(self.state.cards, card_id, "card").status = status
        return {"card_id": card_id, "status": status}

    def _account(self, id: str) -> Account:
        return find(self.state.accounts, id, "account")
