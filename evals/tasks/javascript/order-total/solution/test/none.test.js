import assert from "node:assert/strict";
import { test } from "node:test";

import { lineTotal } from "../src/orders.js";

test("costs nothing where none was ordered", () => {
  assert.equal(lineTotal({ price: 250, quantity: 0 }), 0);
});
