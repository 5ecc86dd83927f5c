"""A web shop: products, orders, returns. Money is kept in cents."""

from typing import ClassVar

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

CATEGORIES = ("audio", "books", "garden", "kitchen", "sports", "toys")


class Product(Record):
    name: str
    category: str
    cents: int
    stock: int


class Order(Record):
    product_id: str
    quantity: int
    status: str
    reason: str | None = None
    """Why it was sent back."""


class ShopState(Record):
    products: dict[str, Product]
    orders: dict[str, Order]


class Shop(Domain[ShopState]):
    name: ClassVar[str] = "shop"
    state_type: ClassVar[type[Record]] = ShopState

    @tool(
        "List the products of a category, cheapest first.",
        category=choice("Department.", *CATEGORIES),
        max_price=number("Leave out what costs more, in euros.", 0, 100_000),
    )
    def search_products(self, category: str, max_price: float | None = None) -> JsonValue:
        found = [
            (product.cents, id)
            for id, product in self.state.products.items()
            if product.category == category and (max_price is None or product.cents <= cents(max_price))
        ]
        return {"products": [self._shown(id) for _, id in sorted(found)[:10]]}

    @tool("The price and stock of one product.", product_id=identifier("The product."))
    def get_product(self, product_id: str) -> JsonValue:
        return self._shown(product_id)

    @tool(
        "Order a product. Refused if there are not enough of it.",
        product_id=identifier("The product."),
        quantity=whole("How many.", 1, 100),
    )
    def place_order(self, product_id: str, quantity: int = 1) -> JsonValue:
        product = self._product(product_id)
        if product.stock < quantity:
            raise ToolError(f"only {product.stock} left of '{product.name}'")
        order = Order(product_id=product_id, quantity=quantity, status="processing")
        id = add(self.state.orders, "ord", order)
        product.stock -= quantity
        return {"order_id": id, "status": order.status, "total": product.cents * quantity / 100}

    @tool("What was ordered and how far the order is.", order_id=identifier("The order."))
    def get_order(self, order_id: str) -> JsonValue:
        order = self._order(order_id)
        name = self._product(order.product_id).name
        return {"order_id": order_id, "product": name, "quantity": order.quantity, "status": order.status}

    @tool("Cancel an order that is still processing.", order_id=identifier("The order."))
    def cancel_order(self, order_id: str) -> JsonValue:
        order = self._order(order_id)
        if order.status != "processing":
            raise ToolError(f"order {order_id} is {order.status} and can no longer be cancelled")
        self._product(order.product_id).stock += order.quantity
        order.status = "cancelled"
        return {"order_id": order_id, "status": order.status}

    @tool(
        "Send a delivered order back.",
        order_id=identifier("The order."),
        reason=choice("Why.", "damaged", "wrong_item", "not_needed"),
    )
    def return_order(self, order_id: str, reason: str) -> JsonValue:
        order = self._order(order_id)
        if order.status != "delivered":
            raise ToolError(f"order {order_id} is {order.status}; only a delivered one can be sent back")
        refund = self._product(order.product_id).cents * order.quantity / 100
        order.status = "returned"
        order.reason = reason
        return {"order_id": order_id, "status": order.status, "refund": refund}

    def _product(self, id: str) -> Product:
        return find(self.state.products, id, "product")

    def _order(self, id: str) -> Order:
        return find(self.state.orders, id, "order")

    def _shown(self, id: str) -> dict[str, JsonValue]:
        product = self._product(id)
        return {"product_id": id, "name": product.name, "price": product.cents / 100, "stock": product.stock}
