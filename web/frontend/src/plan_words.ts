// When what was planned starts, how narrowly, and why no idle work is preempted, as sentences of the
// plan's document (docs/plan.schema.json says what its fields mean).

import { duration, instant, number } from "./format.ts";
import { type Json, isObject, textOf } from "./wire.ts";

/** When it starts at the latest, and by what that is known; empty where nothing is said. */
export function startWords(estimate: Json | undefined): string {
  if (!isObject(estimate)) return "";
  const within = estimate["withinSeconds"];
  if (estimate["basis"] === "MeasuredWaits" && typeof within === "number") {
    const [quantile, confidence] = [Number(estimate["quantile"]), Number(estimate["confidence"])];
    return `${percent(quantile)} of similar work started within ${duration(within)} (${percent(confidence)} confidence, ${number(Number(estimate["cases"]))} waits)`;
  }
  const latest = Date.parse(textOf(estimate["notLaterThan"])) / 1000;
  if (Number.isNaN(latest)) return `No estimate: ${textOf(estimate["why"])}`;
  const by = `Not later than ${instant(latest)}`;
  if (estimate["basis"] === "VictimsLeave") return `${by}, when those that are preempted have ended`;
  const ended = estimate["basis"] === "DeclaredRunTime"
    ? `when ${textOf(estimate["holder"])} ends at the latest (${textOf(estimate["field"])})`
    : "when a protection or a pause has ended";
  return `${by}, ${ended}, if no other work comes before it`;
}

/** With how much less free something else becomes of it; empty where that is not known. */
export function fragileWords(fragile: Json | undefined, victims: boolean): string {
  if (!isObject(fragile)) return "";
  const becomes: Record<string, string> = {
    Starts: "nothing is preempted",
    StartsWithVictims: victims ? "another workload is preempted" : "a workload is preempted",
  };
  const flavor = textOf(fragile["flavor"]);
  const name = textOf(fragile["name"]);
  const where = flavor ? `in flavor ${flavor} of ClusterQueue ${name}` : `on ${name}`;
  return `With ${textOf(fragile["amount"])} ${textOf(fragile["resource"])} less free ${where} ${becomes[textOf(fragile["verdict"])] ?? "it waits"}`;
}

/** Why no idle work is preempted; empty where nothing is said. */
export function idleWords(idle: Json | undefined): string {
  return isObject(idle) ? `${textOf(idle["reason"])}: ${textOf(idle["message"])}` : "";
}

const percent = (share: number): string => `${number(share * 100)} %`;
