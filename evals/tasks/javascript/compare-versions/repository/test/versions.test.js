import assert from "node:assert/strict";
import { test } from "node:test";

import { compareVersions, newest } from "../src/versions.js";

test("compares the first part that differs", () => {
  assert.ok(compareVersions("1.2.3", "1.2.4") < 0);
  assert.ok(compareVersions("2.0.0", "1.9.9") > 0);
});

test("compares parts as numbers", () => {
  assert.ok(compareVersions("1.10.0", "1.9.0") > 0);
  assert.equal(newest(["1.9.0", "1.10.0", "1.2.0"]), "1.10.0");
});

test("takes missing parts as zero", () => {
  assert.equal(compareVersions("1.2", "1.2.0"), 0);
  assert.ok(compareVersions("1.2", "1.2.1") < 0);
});

test("does not mind a v", () => {
  assert.equal(compareVersions("v1.2.3", "1.2.3"), 0);
});

test("refuses what is no version", () => {
  assert.throws(() => compareVersions("latest", "1.0.0"), TypeError);
});

test("has no newest of nothing", () => {
  assert.equal(newest([]), undefined);
});
