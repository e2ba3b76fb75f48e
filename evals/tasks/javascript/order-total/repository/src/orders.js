/** What orders cost, in cents. */

/** The price of all items. */
export function total(items) {
  return items.reduce((sum, item) => sum + item.price, 0);
}

/** The items that cost at least so much. */
export function expensive(items, price) {
  return items.filter((item) => item.price >= price);
}
