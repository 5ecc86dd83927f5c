"""A web shop: products, orders, returns. Money is kept in cents."""

from typing import ClassVar

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.backends.domain import (
    Domain,
    Record,
    ToolError,
    cents,
    choice,
    identifier,
    number,
    tool,
    whole,
)

CATEGORIES = ("audio", "books", "garden", "kitchen", "sports", "toys")


class Shop(Domain):
    """State: products {id: {name, category, cents, stock}}, orders {id: {product_id, quantity, status}}."""

    name: ClassVar[str] = "shop"

    @tool(
        "List the products of a category, cheapest first.",
        category=choice("Department.", *CATEGORIES),
        max_price=number("Leave out what costs more, in euros.", 0, 100_000),
    )
    def search_products(self, category: str, max_price: float | None = None) -> JsonValue:
        found = [
            (product["cents"], id, product)
            for id, product in self.records("products").items()
            if product["category"] == category and (max_price is None or product["cents"] <= cents(max_price))
        ]
        return {"products": [self._shown(id, product) for _, id, product in sorted(found, key=lambda f: f[:2])[:10]]}

    @tool("The price and stock of one product.", product_id=identifier("The product."))
    def get_product(self, product_id: str) -> JsonValue:
        return self._shown(product_id, self.get("products", product_id))

    @tool(
        "Order a product. Refused if there are not enough of it.",
        product_id=identifier("The product."),
        quantity=whole("How many.", 1, 100),
    )
    def place_order(self, product_id: str, quantity: int = 1) -> JsonValue:
        product = self.get("products", product_id)
        if product["stock"] < quantity:
            raise ToolError(f"only {product['stock']} left of '{product['name']}'")
        id = self.add("orders", "ord", {"product_id": product_id, "quantity": quantity, "status": "processing"})
        product["stock"] -= quantity
        return {"order_id": id, "status": "processing", "total": product["cents"] * quantity / 100}

    @tool("What was ordered and how far the order is.", order_id=identifier("The order."))
    def get_order(self, order_id: str) -> JsonValue:
        order = self.get("orders", order_id)
        name = self.get("products", order["product_id"])["name"]
        return {"order_id": order_id, "product": name, "quantity": order["quantity"], "status": order["status"]}

    @tool("Cancel an order that is still processing.", order_id=identifier("The order."))
    def cancel_order(self, order_id: str) -> JsonValue:
        order = self.get("orders", order_id)
        if order["status"] != "processing":
            raise ToolError(f"order {order_id} is {order['status']} and can no longer be cancelled")
        order["status"] = "cancelled"
        self.get("products", order["product_id"])["stock"] += order["quantity"]
        return {"order_id": order_id, "status": "cancelled"}

    @tool(
        "Send a delivered order back.",
        order_id=identifier("The order."),
        reason=choice("Why.", "damaged", "wrong_item", "not_needed"),
    )
    def return_order(self, order_id: str, reason: str) -> JsonValue:
        order = self.get("orders", order_id)
        if order["status"] != "delivered":
            raise ToolError(f"order {order_id} is {order['status']}; only a delivered one can be sent back")
        order["status"] = "returned"
        order["reason"] = reason
        return {"order_id": order_id, "status": "returned", "refund": self._total(order)}

    def _total(self, order: Record) -> float:
        return float(self.get("products", order["product_id"])["cents"] * order["quantity"] / 100)

    def _shown(self, id: str, product: Record) -> dict[str, JsonValue]:
        return {"product_id": id, "name": product["name"], "price": product["cents"] / 100, "stock": product["stock"]}
