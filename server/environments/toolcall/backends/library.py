"""A lending library and its reader's account."""

from datetime import date, timedelta
from typing import ClassVar

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.backends.domain import Domain, Record, ToolError, identifier, text, tool

MAX_RENEWALS = 2
RENEWAL = timedelta(days=21)


class Library(Domain):
    """State: books {id: {title, author, copies}}, loans {id: {book_id, due, renewals}}, loan_due (a new loan's day)."""

    name: ClassVar[str] = "library"

    @tool("Find books by author or part of the name.", author=text("Author or part of the name."))
    def search_books(self, author: str) -> JsonValue:
        wanted = author.casefold()
        found = [(id, book) for id, book in self.records("books").items() if wanted in book["author"].casefold()]
        return {"books": [self._shown(id, book) for id, book in sorted(found, key=lambda pair: pair[0])[:10]]}

    @tool("Borrow a book. Refused if no copy is in.", book_id=identifier("The book."))
    def borrow_book(self, book_id: str) -> JsonValue:
        book = self.get("books", book_id)
        if book["copies"] < 1:
            raise ToolError(f"all copies of '{book['title']}' are lent")
        loan = {"book_id": book_id, "due": self.state["loan_due"], "renewals": 0}
        id = self.add("loans", "loa", loan)
        book["copies"] -= 1
        return {"loan_id": id, "title": book["title"], "due": loan["due"]}

    @tool("List the reader's loans, soonest due first.")
    def list_loans(self) -> JsonValue:
        loans = sorted(self.records("loans").items(), key=lambda pair: (pair[1]["due"], pair[0]))
        return {"loans": [{"loan_id": id, "title": self._title(loan), "due": loan["due"]} for id, loan in loans]}

    @tool("Keep a borrowed book for 21 days more; twice at most.", loan_id=identifier("The loan."))
    def renew_loan(self, loan_id: str) -> JsonValue:
        loan = self.get("loans", loan_id)
        if loan["renewals"] >= MAX_RENEWALS:
            raise ToolError("this loan cannot be renewed again")
        loan["renewals"] += 1
        loan["due"] = (date.fromisoformat(loan["due"]) + RENEWAL).isoformat()
        return {"loan_id": loan_id, "due": loan["due"]}

    @tool("Give a borrowed book back.", loan_id=identifier("The loan."))
    def return_book(self, loan_id: str) -> JsonValue:
        loan = self.get("loans", loan_id)
        title = self._title(loan)
        self.get("books", loan["book_id"])["copies"] += 1
        del self.records("loans")[loan_id]
        return {"status": "returned", "title": title}

    def _title(self, loan: Record) -> str:
        return str(self.get("books", loan["book_id"])["title"])

    def _shown(self, id: str, book: Record) -> dict[str, JsonValue]:
        return {"book_id": id, "title": book["title"], "author": book["author"], "copies_in": book["copies"]}
