import assert from "node:assert/strict";
import { test } from "node:test";

import { retry } from "../src/retry.js";

function failing(times) {
  const operation = async () => {
    operation.calls += 1;
    if (operation.calls <= times) {
      throw new Error(`failure ${operation.calls}`);
    }
    return "done";
  };
  operation.calls = 0;
  return operation;
}

test("gives the result of the first try", async () => {
  const operation = failing(0);
  assert.equal(await retry(operation), "done");
  assert.equal(operation.calls, 1);
});

test("tries again after a failure", async () => {
  const operation = failing(2);
  assert.equal(await retry(operation), "done");
  assert.equal(operation.calls, 3);
});

test("gives the last failure when all tries failed", async () => {
  await assert.rejects(retry(failing(5), { tries: 2 }), /failure 2/);
});

test("wants at least one try", async () => {
  await assert.rejects(retry(failing(0), { tries: 0 }), RangeError);
});
