import assert from "node:assert/strict";
import { test } from "node:test";

import { expensive, total } from "../src/orders.js";

test("adds prices", () => {
  assert.equal(total([{ price: 250 }, { price: 100 }]), 350);
  assert.equal(total([]), 0);
});

test("finds what is expensive", () => {
  assert.deepEqual(expensive([{ price: 250 }, { price: 100 }], 200), [{ price: 250 }]);
});
