import assert from "node:assert/strict";
import { test } from "node:test";

import { queryString, searchLink } from "../src/links.js";

test("joins parameters", () => {
  assert.equal(queryString({ q: "tea", page: 2 }), "q=tea&page=2");
});

test("escapes values", () => {
  assert.equal(queryString({ q: "salt & pepper" }), "q=salt%20%26%20pepper");
});

test("escapes names", () => {
  assert.equal(queryString({ "a b": 1 }), "a%20b=1");
});

test("repeats a name for a list", () => {
  assert.equal(queryString({ tag: ["new", "sale"] }), "tag=new&tag=sale");
});

test("leaves out what is not there", () => {
  assert.equal(queryString({ q: null, page: undefined, size: 0 }), "size=0");
});

test("has no question mark without a query", () => {
  assert.equal(searchLink("/search", {}), "/search");
  assert.equal(searchLink("/search", { q: "tea" }), "/search?q=tea");
});
