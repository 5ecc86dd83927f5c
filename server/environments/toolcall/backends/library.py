"""A lending library and its reader's account."""

from datetime import date, timedelta
from typing import Annotated, ClassVar

from pydantic import AfterValidator, JsonValue

from rolloutgym.server.environments.toolcall.backends.domain import (
    Domain,
    Record,
    ToolError,
    add,
    checked_day,
    find,
    identifier,
    text,
    tool,
)

MAX_RENEWALS = 2
RENEWAL = timedelta(days=21)


class Book(Record):
    title: str
    author: str
    copies: int
    """Not lent."""


class Loan(Record):
    book_id: str
    due: Annotated[str, AfterValidator(checked_day)]
    renewals: int


class LibraryState(Record):
    books: dict[str, Book]
    loans: dict[str, Loan]
    loan_due: Annotated[str, AfterValidator(checked_day)]
    """When a book borrowed now is due."""


class Library(Domain[LibraryState]):
    name: ClassVar[str] = "library"
    state_type: ClassVar[type[Record]] = LibraryState

    @tool("Find books by author or part of the name.", author=text("Author or part of the name."))
    def search_books(self, author: str) -> JsonValue:
        wanted = author.casefold()
        books = self.state.books
        found = [id for id in sorted(books) if wanted in books[id].author.casefold()]
        return {"books": [self._shown(id) for id in found[:10]]}

    @tool("Borrow a book. Refused if no copy is in.", book_id=identifier("The book."))
    def borrow_book(self, book_id: str) -> JsonValue:
        book = self._book(book_id)
        if book.copies < 1:
            raise ToolError(f"all copies of '{book.title}' are lent")
        id = add(self.state.loans, "loa", Loan(book_id=book_id, due=self.state.loan_due, renewals=0))
        book.copies -= 1
        return {"loan_id": id, "title": book.title, "due": self.state.loan_due}

    @tool("List the reader's loans, soonest due first.")
    def list_loans(self) -> JsonValue:
        loans = sorted((loan.due, id, loan.book_id) for id, loan in self.state.loans.items())
        return {"loans": [{"loan_id": id, "title": self._book(book).title, "due": due} for due, id, book in loans[:20]]}

    @tool("Keep a borrowed book for 21 days more; twice at most.", loan_id=identifier("The loan."))
    def renew_loan(self, loan_id: str) -> JsonValue:
        loan = self._loan(loan_id)
        if loan.renewals >= MAX_RENEWALS:
            raise ToolError("this loan cannot be renewed again")
        loan.renewals += 1
        loan.due = (date.fromisoformat(loan.due) + RENEWAL).isoformat()
        return {"loan_id": loan_id, "due": loan.due}

    @tool("Give a borrowed book back.", loan_id=identifier("The loan."))
    def return_book(self, loan_id: str) -> JsonValue:
        book = self._book(self._loan(loan_id).book_id)
        book.copies += 1
        del self.state.loans[loan_id]
        return {"status": "returned", "title": book.title}

    def _book(self, id: str) -> Book:
        return find(self.state.books, id, "book")

    def _loan(self, id: str) -> Loan:
        return find(self.state.loans, id, "loan")

    def _shown(self, id: str) -> dict[str, JsonValue]:
        book = self._book(id)
        return {"book_id": id, "title": book.title, "author": book.author, "copies_in": book.copies}
