"""What a customer is about to buy."""


class Basket:
    def __init__(self, customer, items=None):
        self.customer = customer
        self.items = [] if items is None else items

    def add(self, title, price, quantity=1):
        """Put something in; the same title again adds to its quantity."""
        if quantity < 1:
            raise ValueError("at least one")
        for item in self.items:
            if item["title"] == title:
                item["quantity"] += quantity
                return
        self.items.append({"title": title, "price": price, "quantity": quantity})

    def remove(self, title):
        self.items = [item for item in self.items if item["title"] != title]

    def total(self):
        return sum(item["price"] * item["quantity"] for item in self.items)
