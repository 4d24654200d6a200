// Nodes are added up by domain, with the most room first, and those of no domain last.

import assert from "node:assert/strict";
import { test } from "node:test";
import { domainsOf } from "../src/domains.ts";
import { tableOf } from "../src/topic_state.ts";

const COLUMNS = ["node", "working", "idle", "leaving", "claimed", "free", "domains"];

function table(...nodes: [string, number, number, string[]][]) {
  const data = nodes.map(([name, working, free, domains]) => [name, working, 0, 0, 0, free, domains]);
  return tableOf({
    columns: COLUMNS.map((name) => [name, "text"]),
    slots: nodes.map((_, slot) => slot),
    data: COLUMNS.map((_, index) => data.map((row) => row[index]!)),
  });
}

const NODES = table(
  ["n0", 8, 0, ["b1", "r1"]], ["n1", 4, 4, ["b1", "r1"]], ["n2", 2, 6, ["b1", "r2"]],
  ["n3", 0, 8, []], ["n4", 3, 5, ["b2", "r10"]],
);

test("racks with the most room come first, and nodes of no domain last", () => {
  const found = domainsOf(NODES, 1).map(({ name, free, total, largest, slots }) => [name, free, total, largest, slots]);
  assert.deepEqual(found, [
    ["b1 / r2", 6, 8, 6, [2]], ["b2 / r10", 5, 8, 5, [4]], ["b1 / r1", 4, 16, 4, [0, 1]], ["", 8, 8, 8, [3]],
  ]);
});

test("a wider level adds up its narrower ones", () => {
  const found = domainsOf(NODES, 0).map(({ name, free, slots }) => [name, free, slots]);
  assert.deepEqual(found, [["b1", 10, [0, 1, 2]], ["b2", 5, [4]], ["", 8, [3]]]);
});
