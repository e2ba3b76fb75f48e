import assert from "node:assert/strict";
import { test } from "node:test";

import { expensive, lineTotal, total } from "../src/orders.js";

test("adds prices", () => {
  assert.equal(total([{ price: 250 }, { price: 100 }]), 350);
  assert.equal(total([]), 0);
});

test("multiplies by the quantity", () => {
  assert.equal(lineTotal({ price: 250, quantity: 3 }), 750);
  assert.equal(lineTotal({ price: 250 }), 250);
});

test("refuses half an item", () => {
  assert.throws(() => lineTotal({ price: 250, quantity: 0.5 }), RangeError);
});

test("takes a discount", () => {
  assert.equal(total([{ price: 333, quantity: 1 }], 10), 300);
});

test("finds what is expensive", () => {
  assert.deepEqual(expensive([{ price: 250 }, { price: 100 }], 200), [{ price: 250 }]);
});
