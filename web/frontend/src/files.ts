// Rows as files, in the forms in which the server writes them: CSV (RFC 4180) for spreadsheets, JSON.

import type { TableState } from "./topic_state.ts";
import type { Cell, Kind } from "./wire.ts";

export function csv(table: TableState, slots: readonly number[]): string {
  const lines = slots.map((slot) => {
    const row = table.rowOf.get(slot)!;
    return table.columns.map(([, kind], index) => quoted(written(table.data[index]?.[row] ?? null, kind))).join(",");
  });
  return [table.columns.map(([name]) => quoted(name)).join(","), ...lines, ""].join("\r\n");
}

export function json(table: TableState, slots: readonly number[]): string {
  const rows = slots.map((slot) => {
    const row = table.rowOf.get(slot)!;
    return Object.fromEntries(table.columns.map(([name], index) => [name, table.data[index]?.[row] ?? null]));
  });
  return JSON.stringify(rows);
}

function written(cell: Cell, kind: Kind): string {
  if (cell === null) return "";
  if (typeof cell === "boolean") return String(cell);
  if (typeof cell === "number") {
    return kind === "instant" ? new Date(cell * 1000).toISOString().replace(/\.\d+/, "") : String(cell);
  }
  const text = Array.isArray(cell) ? cell.join("; ") : cell;
  // What a spreadsheet would calculate is kept a text: names of objects are other people's.
  return /^[=+\-@\t\r\n|%]/.test(text) ? `'${text}` : text;
}

const quoted = (text: string): string => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
