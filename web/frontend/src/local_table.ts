// Tables made here of rows that came as objects: answers to a plan, reports of studies.

import { type TableState, tableOf } from "./topic_state.ts";
import type { Cell, Json, JsonObject, Kind } from "./wire.ts";

export function tableOfObjects(rows: JsonObject[], kinds: Record<string, Kind> = {}): TableState {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const columns = names.map((name): [string, Kind] => [name, kinds[name] ?? kindOf(rows, name)]);
  const data = names.map((name) => rows.map((row) => cellOf(row[name])));
  return tableOf({ columns, slots: rows.map((_, index) => index), data });
}

function kindOf(rows: JsonObject[], name: string): Kind {
  const found = rows.map((row) => row[name]).filter((value) => value !== null && value !== undefined);
  if (!found.length) return "text";
  if (found.every((value) => typeof value === "number")) {
    return /seconds$|_s$/i.test(name) ? "duration" : "number";
  }
  if (found.every((value) => typeof value === "boolean")) return "flag";
  return found.every(Array.isArray) ? "list" : "text";
}

function cellOf(value: Json | undefined): Cell {
  if (value === undefined || value === null) return null;
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object") return value;
  return Object.entries(value).map(([name, each]) => `${name}: ${plain(each)}`).join(", ");
}

/** What stands inside of a cell: objects as JSON, everything else as it is written. */
const plain = (value: Json | undefined): string =>
  typeof value === "object" && value !== null ? JSON.stringify(value) : String(value ?? "");
