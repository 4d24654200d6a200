// Rows kept in order through changes stand as if they had been sorted anew.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Order } from "../src/order.ts";
import { type PageState, advance, begun } from "../src/topic_state.ts";
import type { Cell } from "../src/wire.ts";

function stateOf(amounts: Cell[], names: Cell[]): PageState {
  const slots = amounts.map((_, index) => index);
  return begun({
    page: "p", epoch: "e", sequence: 0, now: 0, values: {},
    tables: { t: { columns: [["name", "text"], ["amount", "number"]], slots, data: [names, amounts] } },
  });
}

/** Numbers that look random and are the same in every run. */
function* drawn(seed: number): Generator<number> {
  for (let x = seed; ; ) yield (x = (x * 1103515245 + 12345) % 2147483648) / 2147483648;
}

test("null stands last both ways, and equal rows as they came", () => {
  const { tables } = stateOf([2, null, 1, 2], ["a", "b", "c", "d"]);
  const of = (descending: boolean): readonly number[] =>
    new Order().of(tables["t"]!, { column: 1, descending }, "");
  assert.deepEqual(of(false), [2, 0, 3, 1]);
  assert.deepEqual(of(true), [0, 3, 2, 1]);
});

test("every word of a search has to be in the row", () => {
  const { tables } = stateOf([1, 2, 3], ["job/team-a/Train", "job/team-b/train", "job/team-a/eval"]);
  assert.deepEqual(new Order().of(tables["t"]!, null, " TRAIN team-a"), [0]);
});

test("an order kept through 300 changes is the order made anew", () => {
  const random = drawn(1);
  const next = (most: number): number => Math.floor(random.next().value! * most);
  const state = stateOf(Array.from({ length: 200 }, () => next(50)), Array.from({ length: 200 }, (_, i) => `n${i}`));
  const kept = new Order();
  let merged = 0;
  for (let sequence = 1; sequence <= 300; sequence++) {
    const before = state.tables["t"]!;
    const slots = [...new Set(Array.from({ length: 1 + next(8) }, () => before.slots[next(before.slots.length)]!))];
    const add = sequence % 10 === 0 ? { slots: [1000 + sequence], data: [["new"], [next(50)]] as Cell[][] } : undefined;
    advance(state, {
      sequence, now: sequence,
      tables: { t: { set: [[1, slots, slots.map(() => next(50))]], ...(add && { add }) } },
    });
    const table = state.tables["t"]!;
    assert.notEqual(table, before);
    const sorting = { column: 1, descending: sequence > 150 };
    assert.deepEqual(kept.of(table, sorting, ""), new Order().of(table, sorting, ""));
    merged += add ? 0 : 1;
  }
  assert.ok(merged > 200);
});
