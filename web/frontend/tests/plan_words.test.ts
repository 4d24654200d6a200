// What the plan's document says of start and margin is told in sentences, and nothing where it is silent.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fragileWords, idleWords, startWords } from "../src/plan_words.ts";

const estimate = (fields: Record<string, string | number | null>) => ({
  basis: "", notLaterThan: "", holder: "", field: "", withinSeconds: null, quantile: null,
  confidence: null, cases: 0, why: "", ...fields,
});

test("a start is told with what it is known by", () => {
  assert.equal(startWords(null), "");
  assert.equal(startWords(estimate({ why: "3 similar waits were measured, 29 are needed" })), "No estimate: 3 similar waits were measured, 29 are needed");
  assert.equal(
    startWords(estimate({ basis: "MeasuredWaits", withinSeconds: 5400, quantile: 0.9, confidence: 0.95, cases: 41 })),
    "90 % of similar work started within 1 h 30 m (95 % confidence, 41 waits)",
  );
  const at = "2026-11-23T12:00:00Z";
  assert.match(startWords(estimate({ basis: "VictimsLeave", notLaterThan: at })), /^Not later than 2026-11-23 .*, when those that are preempted have ended$/);
  assert.match(
    startWords(estimate({ basis: "DeclaredRunTime", notLaterThan: at, holder: "Job a/b", field: "spec.activeDeadlineSeconds" })),
    /, when Job a\/b ends at the latest \(spec.activeDeadlineSeconds\), if no other work comes before it$/,
  );
  assert.match(startWords(estimate({ basis: "ProtectionEnds", notLaterThan: at })), /, when a protection or a pause has ended, if no other work comes before it$/);
});

test("a margin names what becomes of it where, and who waits for whom", () => {
  const node = { resource: "nvidia.com/gpu", amount: "2", kind: "Node", name: "node-1", flavor: "", verdict: "Waits" };
  assert.equal(fragileWords(null, false), "");
  assert.equal(fragileWords(node, false), "With 2 nvidia.com/gpu less free on node-1 it waits");
  assert.equal(fragileWords({ ...node, verdict: "StartsWithVictims" }, false), "With 2 nvidia.com/gpu less free on node-1 a workload is preempted");
  assert.equal(
    fragileWords({ ...node, kind: "ClusterQueue", name: "a", flavor: "h100", verdict: "StartsWithVictims" }, true),
    "With 2 nvidia.com/gpu less free in flavor h100 of ClusterQueue a another workload is preempted",
  );
});

test("why no idle work is preempted is told by its reason and its sentence", () => {
  assert.equal(idleWords(null), "");
  assert.equal(idleWords({ reason: "NotOptedIn", message: "Nothing has opted in" }), "NotOptedIn: Nothing has opted in");
});
