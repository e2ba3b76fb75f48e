import assert from "node:assert/strict";
import { test } from "node:test";

import { NotAllowed, remove } from "../src/documents.js";

test("keeps others from deleting", async () => {
  const store = new Map([["plan", { owner: "ada", readers: ["grace"] }]]);
  await assert.rejects(remove(store, "plan", { name: "grace" }), NotAllowed);
  assert.equal(store.size, 1);
});
