"""A bank customer's accounts and cards. Money is kept in cents."""

from typing import ClassVar

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.backends.domain import (
    Domain,
    ToolError,
    cents,
    choice,
    identifier,
    number,
    tool,
    whole,
)


class Bank(Domain):
    """State: accounts {id: {kind, cents}}, cards {id: {account_id, status}},
    transactions {id: {account_id, cents, with}}."""

    name: ClassVar[str] = "bank"

    @tool("List the customer's accounts.")
    def list_accounts(self) -> JsonValue:
        accounts = sorted(self.records("accounts").items())
        return {"accounts": [{"account_id": id, "kind": account["kind"]} for id, account in accounts]}

    @tool("The balance of one account, in euros.", account_id=identifier("The account."))
    def get_balance(self, account_id: str) -> JsonValue:
        return {"account_id": account_id, "balance": self.get("accounts", account_id)["cents"] / 100}

    @tool(
        "Move money between two of the customer's accounts. Refused without enough money.",
        from_account=identifier("Account that pays."),
        to_account=identifier("Account that receives."),
        amount=number("Euros, at most two decimals.", 0.01, 1_000_000),
    )
    def transfer_money(self, from_account: str, to_account: str, amount: float) -> JsonValue:
        payer, payee = self.get("accounts", from_account), self.get("accounts", to_account)
        if from_account == to_account:
            raise ToolError("the two accounts are the same")
        moved = cents(amount)
        if payer["cents"] < moved:
            raise ToolError(f"account {from_account} holds only {payer['cents'] / 100:.2f}")
        self.add("transactions", "trx", {"account_id": from_account, "cents": -moved, "with": to_account})
        self.add("transactions", "trx", {"account_id": to_account, "cents": moved, "with": from_account})
        payer["cents"] -= moved
        payee["cents"] += moved
        return {"status": "done", "amount": moved / 100, "new_balance": payer["cents"] / 100}

    @tool(
        "List an account's transactions; negative amounts were paid out.",
        account_id=identifier("The account."),
        limit=whole("How many at most.", 1, 50),
    )
    def list_transactions(self, account_id: str, limit: int = 10) -> JsonValue:
        self.get("accounts", account_id)
        found = [(id, t) for id, t in sorted(self.records("transactions").items()) if t["account_id"] == account_id]
        return {
            "transactions": [
                {"transaction_id": id, "amount": entry["cents"] / 100, "with": entry["with"]}
                for id, entry in found[:limit]
            ]
        }

    @tool("List the customer's cards and whether they work.")
    def list_cards(self) -> JsonValue:
        cards = sorted(self.records("cards").items())
        return {"cards": [{"card_id": id, "account_id": c["account_id"], "status": c["status"]} for id, c in cards]}

    @tool(
        "Freeze a card, or make a frozen card work again.",
        card_id=identifier("The card."),
        status=choice("What the card shall be.", "active", "frozen"),
    )
    def set_card_status(self, card_id: str, status: str) -> JsonValue:
        self.get("cards", card_id)["status"] = status
        return {"card_id": card_id, "status": status}
