import assert from "node:assert/strict";
import { test } from "node:test";

import { NotAllowed, read, remove } from "../src/documents.js";

const store = () => new Map([["plan", { owner: "ada", readers: ["ada", "grace"], text: "..." }]]);

test("reads a document", async () => {
  assert.equal((await read(store(), "plan", { name: "grace" })).owner, "ada");
  assert.equal(await read(store(), "none", { name: "grace" }), undefined);
});

test("keeps a document from others", async () => {
  await assert.rejects(read(store(), "plan", { name: "mallory" }), NotAllowed);
});

test("deletes a document of its owner", async () => {
  const documents = store();
  assert.equal(await remove(documents, "plan", { name: "ada" }), true);
  assert.equal(documents.size, 0);
});

test("deletes a document for an administrator", async () => {
  assert.equal(await remove(store(), "plan", { name: "joan", administrator: true }), true);
});
