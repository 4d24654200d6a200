// The state of a page follows the differences that it is told, or refuses them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { OutOfStep, advance, begun, snapshotOf } from "../src/topic_state.ts";
import type { Snapshot } from "../src/wire.ts";

const snapshot = (): Snapshot => ({
  page: "now",
  epoch: "e",
  sequence: 4,
  now: 100,
  values: { resource: "gpu", gone: 1 },
  tables: {
    holders: {
      columns: [["unit", "unit"], ["amount", "number"]],
      slots: [0, 1, 2],
      data: [["a", "b", "c"], [8, 16, 24]],
    },
  },
});

test("rows are removed, added at the end and changed by their slots", () => {
  const state = begun(snapshot());
  advance(state, {
    sequence: 5,
    now: 101,
    values: { resource: "cpu" },
    gone: ["gone"],
    tables: {
      holders: { remove: [1], add: { slots: [7], data: [["d"], [1]] }, set: [[1, [2, 7], [25, 2]]] },
    },
  });
  assert.deepEqual(snapshotOf(state), {
    page: "now",
    epoch: "e",
    sequence: 5,
    now: 101,
    values: { resource: "cpu" },
    tables: {
      holders: {
        columns: [["unit", "unit"], ["amount", "number"]],
        slots: [0, 2, 7],
        data: [["a", "c", "d"], [8, 25, 2]],
      },
    },
  });
  assert.deepEqual([...state.tables["holders"]!.rowOf], [[0, 0], [2, 1], [7, 2]]);
});

test("a difference that does not follow, or names what is not there, is refused", () => {
  const changes = [
    { sequence: 6, now: 1 },
    { sequence: 4, now: 1 },
    { sequence: 5, now: 1, tables: { other: { remove: [0] } } },
    { sequence: 5, now: 1, tables: { holders: { remove: [9] } } },
    { sequence: 5, now: 1, tables: { holders: { set: [[0, [9], ["x"]]] as [number, number[], string[]][] } } },
    { sequence: 5, now: 1, tables: { holders: { set: [[5, [0], ["x"]]] as [number, number[], string[]][] } } },
    { sequence: 5, now: 1, tables: { holders: { add: { slots: [0], data: [["x"], [1]] } } } },
  ];
  for (const change of changes) {
    assert.throws(() => advance(begun(snapshot()), change), OutOfStep, JSON.stringify(change));
  }
});

test("a snapshot is not changed by what becomes of the state", () => {
  const given = snapshot();
  const state = begun(given);
  advance(state, { sequence: 5, now: 1, tables: { holders: { remove: [0], set: [[1, [1], [99]]] } } });
  assert.deepEqual(given, snapshot());
});
