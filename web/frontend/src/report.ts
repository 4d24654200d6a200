// What `reprieve simulate` writes, read: `results.csv` with a row for each run, `decisions.jsonl`
// with a line for each decision. Anything else in those forms is read as a table of its columns.

import type { JsonObject } from "./wire.ts";

export interface Report {
  name: string;
  kind: "results" | "decisions" | "rows";
  rows: JsonObject[];
}

/** Read a file of a study; throws an Error that says what is wrong and what is accepted. */
export function reportOf(text: string, name: string): Report {
  const rows = /^\s*[[{]/.test(text) ? jsonRows(text, name) : csvRows(text);
  const first = rows[0];
  if (!first) throw new Error(`${name}: no rows; accepted: ${ACCEPTED}`);
  const has = (...names: string[]): boolean => names.every((each) => each in first);
  const kind = has("policy", "at_s", "decision") ? "decisions" : has("policy", "load") ? "results" : "rows";
  return { name, kind, rows };
}

const ACCEPTED = "results.csv and decisions.jsonl as reprieve simulate writes them";

function jsonRows(text: string, name: string): JsonObject[] {
  try {
    const whole: unknown = JSON.parse(text);
    if (Array.isArray(whole)) return whole as JsonObject[];
    const found = Object.values(whole as JsonObject).find((each) => Array.isArray(each) && typeof each[0] === "object");
    return (found as JsonObject[] | undefined) ?? [whole as JsonObject];
  } catch {
    // Not one document: a document in each line.
  }
  return text.split("\n").filter((line) => line.trim()).map((line, index) => {
    try {
      return JSON.parse(line) as JsonObject;
    } catch {
      throw new Error(`${name}, line ${index + 1}: not JSON; accepted: ${ACCEPTED}`);
    }
  });
}

function csvRows(text: string): JsonObject[] {
  const lines = csvCells(text);
  const names = lines.shift() ?? [];
  return lines.map((cells) =>
    Object.fromEntries(names.map((name, index) => {
      const cell = cells[index] ?? "";
      return [name, cell !== "" && !Number.isNaN(Number(cell)) ? Number(cell) : cell || null];
    })),
  );
}

function csvCells(text: string): string[][] {
  const lines: string[][] = [];
  for (const line of text.split(/\r?\n/)) {
    if (!line) continue;
    const cells = [...line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)];
    lines.push(cells.map(([, quoted, bare]) => quoted?.replaceAll('""', '"') ?? bare ?? ""));
  }
  return lines;
}

export interface Mean {
  policy: string;
  load: string;
  runs: number;
  means: Record<string, number | null>;
}

/** Columns that say which run it is rather than what became of it. */
const RUN = new Set(["trace", "seed", "load", "policy", "own_load", "reached_load", "decision_cpu_s"]);

/** The mean of every measure over the runs of a load and policy, in the order of the file. */
export function meansOf(rows: JsonObject[]): { measures: string[]; means: Mean[] } {
  const measures = Object.keys(rows[0] ?? {}).filter(
    (name) => !RUN.has(name) && rows.some((row) => typeof row[name] === "number"),
  );
  const groups = new Map<string, JsonObject[]>();
  for (const row of rows) {
    const key = `${String(row["load"])}\n${String(row["policy"])}`;
    groups.set(key, [...(groups.get(key) ?? []), row]);
  }
  const means = [...groups].map(([key, group]): Mean => {
    const [load = "", policy = ""] = key.split("\n");
    const entries = measures.map((name) => {
      const found = group.map((row) => row[name]).filter((value) => typeof value === "number");
      return [name, found.length ? found.reduce((a, b) => a + b, 0) / found.length : null] as const;
    });
    return { policy, load: load === "null" ? "as it is" : load, runs: group.length, means: Object.fromEntries(entries) };
  });
  return { measures, means };
}

/** How often somebody had been preempted by each time, by policy: of the first run of each. */
export function displacedOverTime(rows: JsonObject[]): { hours: number[]; series: Map<string, (number | null)[]> } {
  const first = rows[0];
  const run = rows.filter((row) => ["trace", "seed", "load"].every((name) => row[name] === first?.[name]));
  const moved = run.filter((row) => row["decision"] !== "admitted").sort((a, b) => Number(a["at_s"]) - Number(b["at_s"]));
  const policies = [...new Set(run.map((row) => String(row["policy"])))];
  const series = new Map<string, (number | null)[]>(policies.map((name) => [name, []]));
  const counts = new Map(policies.map((name) => [name, 0]));
  const hours: number[] = [];
  for (const row of moved) {
    const name = String(row["policy"]);
    counts.set(name, counts.get(name)! + 1);
    hours.push(Number(row["at_s"]) / 3600);
    for (const policy of policies) series.get(policy)!.push(counts.get(policy)!);
  }
  return { hours, series };
}
