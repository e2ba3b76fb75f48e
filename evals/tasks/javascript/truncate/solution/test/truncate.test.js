import assert from "node:assert/strict";
import { test } from "node:test";

import { truncate } from "../src/text.js";

test("leaves a text that fits", () => {
  assert.equal(truncate("salt", 10), "salt");
  assert.equal(truncate("salt", 4), "salt");
});

test("cuts after a whole word", () => {
  assert.equal(truncate("salt and pepper", 10), "salt and…");
  assert.equal(truncate("salt and pepper", 9), "salt and…");
});

test("cuts within the only word", () => {
  assert.equal(truncate("peppermill", 7), "pepper…");
});

test("takes another ellipsis", () => {
  assert.equal(truncate("salt and pepper", 12, " ..."), "salt and ...");
});

test("refuses a limit without room", () => {
  assert.throws(() => truncate("salt", 2, "..."), RangeError);
});
