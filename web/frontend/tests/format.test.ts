// What people read of numbers, durations and ids.

import assert from "node:assert/strict";
import { test } from "node:test";
import { duration, number, unitOf, words } from "../src/format.ts";
import { displacedOverTime, meansOf, reportOf } from "../src/report.ts";

test("a duration has at most two units", () => {
  const said = [0.42, 5, 59, 61, 600, 2_460, 22_200, 90_000, 259_200, 1_000_000].map(duration);
  assert.deepEqual(said, [
    "0.4 s", "5 s", "59 s", "1 m 1 s", "10 m", "41 m", "6 h 10 m", "1 d 1 h", "3 d", "11 d",
  ]);
  assert.equal(duration(-90), "−1 m 30 s");
});

test("numbers have separators, and two places at most", () => {
  assert.deepEqual([40_000, 0.125, 12.5].map(number), ["40,000", "0.13", "12.5"]);
});

test("work that may not be named is no unit", () => {
  assert.deepEqual(unitOf("job/team-a/train"), { kind: "job", namespace: "team-a", name: "train" });
  assert.equal(unitOf("another tenant's work #a3f1"), null);
  assert.equal(unitOf("job//train"), null);
});

test("names of columns are read as words", () => {
  assert.deepEqual(["borrowingLimit", "waits_since", "gpus"].map(words), ["borrowing limit", "waits since", "GPUs"]);
});

test("results of a study are means over the runs of a load and policy", () => {
  const { kind, rows } = reportOf('trace,seed,load,policy,wait_p50_s\n"a,b",0,1.0,x,10\n"a,b",1,1.0,x,20\nc,0,1.0,y,\n', "results.csv");
  assert.equal(kind, "results");
  assert.equal(rows[0]!["trace"], "a,b");
  assert.deepEqual(meansOf(rows), {
    measures: ["wait_p50_s"],
    means: [
      { policy: "x", load: "1", runs: 2, means: { wait_p50_s: 15 } },
      { policy: "y", load: "1", runs: 1, means: { wait_p50_s: null } },
    ],
  });
});

test("displacements are counted over time, by policy", () => {
  const line = (policy: string, at: number, decision: string): string =>
    JSON.stringify({ trace: "t", seed: 0, load: 1, policy, at_s: at, decision, job: "j" });
  const text = [line("x", 0, "admitted"), line("y", 3600, "preempted"), line("x", 7200, "preempted")].join("\n");
  const { kind, rows } = reportOf(text, "decisions.jsonl");
  assert.equal(kind, "decisions");
  assert.deepEqual(displacedOverTime(rows), { hours: [1, 2], series: new Map([["x", [0, 1]], ["y", [1, 1]]]) });
});

test("a file that is neither is refused with what is accepted", () => {
  assert.throws(() => reportOf("", "x.csv"), /no rows; accepted: results.csv/);
  assert.throws(() => reportOf("{bad\n", "x.jsonl"), /x.jsonl, line 1: not JSON; accepted/);
});
