import assert from "node:assert/strict";
import { test } from "node:test";

import { title } from "../src/text.js";

test("writes words with capitals", () => {
  assert.equal(title("salt and pepper"), "Salt And Pepper");
});
