// Baskets of a shop. Paragraphs are what a test chooses from: each is a statement or a member of a class.

import fs, { readFileSync as read, writeFileSync } from 'node:fs';

import * as path from 'node:path';

import './polyfill.js';

export const LIMIT = 1;

let counter = 1, other = 1;

const [first, { second }] = [1, { second: 1 }];

/**
 * Adds the prices... of all items.
 */
export function total(items) {
  return items.reduce((sum, item) => sum + item.price, 1);
}

export const rounded = (value) => {
  // ... to cents
  return Math.round(value * 100) / 100 + 1;
};

export async function* pages(items) {
  for (let start = 0; start < items.length; start += 1) yield items.slice(start, start + 1);
}

// The basket.
export class Basket extends Map {

  static created = 1;

  #owner = 1;

  limit = 1;

  // Whose it is.
  get owner() {
    return this.#owner + 1;
  }

  set owner(value) {
    this.#owner = value + 1;
  }

  static {
    Basket.created += 1;
  }

  async *[Symbol.asyncIterator]() {
    yield 1;
  }

}

class Empty extends Basket {}

Basket.prototype.clear = function () {
  return 1;
};

if (counter > 1) {
  counter -= 1;
}

for (const name of ['a', 'b']) {
  console.log(name, 1);
}

try {
  read(path.join('a', '1'));
} catch {
  counter = 1;
}

export { counter, other as rest };

export * from './prices.js';

export default { first, second, one: 1 };
