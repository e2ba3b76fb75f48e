/** What orders cost, in cents. */

/** An order's line: what it costs, for as many as were ordered. */
export function lineTotal(item) {
  const quantity = item.quantity ?? 1;
  if (quantity < 0 || !Number.isInteger(quantity)) {
    throw new RangeError(`a quantity is a whole number: ${item.quantity}`);
  }
  return item.price * quantity;
}

/** The price of all items, less a discount in percent, rounded to whole cents. */
export function total(items, discount = 0) {
  if (discount < 0 || discount > 100) {
    throw new RangeError(`a discount is between 0 and 100 percent: ${discount}`);
  }
  const sum = items.reduce((sum, item) => sum + lineTotal(item), 0);
  return Math.round((sum * (100 - discount)) / 100);
}

/** The items that cost at least so much. */
export function expensive(items, price) {
  return items.filter((item) => item.price >= price);
}
