// What the server sends: a page as values and tables in columns, and how it changes.

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type JsonObject = { [name: string]: Json };
export type Cell = string | number | boolean | string[] | null;

/** How the cells of a column are shown and sorted; anything else is shown as text. */
export type Kind =
  | "text"
  | "number"
  | "instant"
  | "duration"
  | "word"
  | "flag"
  | "list"
  | "unit";

export type WireColumn = [name: string, kind: Kind];

export interface WireTable {
  columns: WireColumn[];
  slots: number[];
  /** For each column its cells, in the order of the slots. */
  data: Cell[][];
}

export interface Snapshot {
  page: string;
  epoch: string;
  sequence: number;
  /** Seconds since the epoch, by the server's clock. */
  now: number;
  values: JsonObject;
  tables: Record<string, WireTable>;
}

export interface TableDifference {
  remove?: number[];
  add?: { slots: number[]; data: Cell[][] };
  /** Index of the column, slots, their new cells. */
  set?: [column: number, slots: number[], cells: Cell[]][];
}

export interface Difference {
  sequence: number;
  now: number;
  values?: JsonObject;
  gone?: string[];
  tables?: Record<string, TableDifference>;
}

export interface Session {
  mode: "dashboard" | "web";
  cluster: string;
  viewer: string;
  /** The namespaces that may be seen; null: all of them. */
  namespaces: string[] | null;
  version: string;
  insecure: boolean;
  /** Which page comes first. */
  home?: string;
  /** The namespaces that are read where not all may be. */
  own?: string[];
}

export const isObject = (value: Json | undefined): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

export const textOf = (value: Json | undefined): string =>
  typeof value === "string" ? value : typeof value === "number" ? String(value) : "";

export const numberOf = (value: Json | undefined): number | null =>
  typeof value === "number" ? value : null;

/** What a failed answer says, without trusting that it says anything. */
export async function errorOf(answer: Response): Promise<string> {
  try {
    const said = (await answer.json()) as { error?: unknown };
    if (typeof said.error === "string" && said.error) return said.error;
  } catch {
    // Not JSON: the status has to do.
  }
  return `The server answered with ${answer.status}.`;
}
