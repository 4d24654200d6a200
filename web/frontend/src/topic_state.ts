// The state of one page as the server has it, kept up by differences.
//
// Rows stay in the order in which they came; a row is found by its slot. A difference that does not
// follow the state, or that names a slot which is not there, is refused: whoever reads then asks for
// a new snapshot, since a page that might be wrong is worse than one that comes a moment later.

import type {
  Cell,
  Difference,
  JsonObject,
  Snapshot,
  TableDifference,
  WireColumn,
  WireTable,
} from "./wire.ts";

export class OutOfStep extends Error {}

export interface TableState {
  /** The same object for as long as it is the same table, however it changes. */
  readonly columns: readonly WireColumn[];
  slots: number[];
  data: Cell[][];
  /** Where the row of a slot stands: the inverse of `slots`. */
  rowOf: Map<number, number>;
  /** Rises with each change, so that what is made of the table can be kept. */
  version: number;
  /** Whether rows were added or removed at that version, and which slots changed in place. */
  changed: { rows: boolean; slots: Set<number> };
}

export interface PageState {
  page: string;
  epoch: string;
  sequence: number;
  now: number;
  values: JsonObject;
  tables: Record<string, TableState>;
}

export function begun(snapshot: Snapshot): PageState {
  const tables: Record<string, TableState> = {};
  for (const [name, table] of Object.entries(snapshot.tables)) tables[name] = tableOf(table);
  const { page, epoch, sequence, now, values } = snapshot;
  return { page, epoch, sequence, now, values, tables };
}

/** Change the state as the difference says; throws OutOfStep, with the state then of no use. */
export function advance(state: PageState, difference: Difference): void {
  if (difference.sequence !== state.sequence + 1) {
    throw new OutOfStep(`difference ${difference.sequence} after ${state.sequence}`);
  }
  for (const [name, change] of Object.entries(difference.tables ?? {})) {
    const table = state.tables[name];
    if (!table) throw new OutOfStep(`no table ${name}`);
    // Another object, so that what is drawn of it is drawn again; what did not change is not.
    state.tables[name] = advanced({ ...table }, change);
  }
  if (difference.values || difference.gone?.length) {
    const values = { ...state.values, ...difference.values };
    for (const name of difference.gone ?? []) delete values[name];
    state.values = values;
  }
  state.sequence = difference.sequence;
  state.now = difference.now;
}

/** The state as a snapshot, for a reader that comes later. */
export function snapshotOf(state: PageState): Snapshot {
  const tables: Record<string, WireTable> = {};
  for (const [name, { columns, slots, data }] of Object.entries(state.tables)) {
    tables[name] = { columns: [...columns], slots, data };
  }
  const { page, epoch, sequence, now, values } = state;
  return { page, epoch, sequence, now, values, tables };
}

export function tableOf({ columns, slots, data }: WireTable): TableState {
  const table: TableState = {
    columns,
    slots: [...slots],
    data: columns.map((_, index) => [...(data[index] ?? [])]),
    rowOf: new Map(),
    version: 0,
    changed: { rows: true, slots: new Set() },
  };
  number(table);
  return table;
}

function advanced(table: TableState, change: TableDifference): TableState {
  const touched = new Set<number>();
  if (change.remove?.length) remove(table, change.remove);
  if (change.add?.slots.length) add(table, change.add.slots, change.add.data);
  for (const [index, slots, cells] of change.set ?? []) {
    const column = table.data[index];
    if (!column) throw new OutOfStep(`no column ${index}`);
    slots.forEach((slot, i) => {
      column[rowAt(table, slot)] = cells[i] ?? null;
      touched.add(slot);
    });
  }
  table.version += 1;
  table.changed = {
    rows: Boolean(change.remove?.length || change.add?.slots.length),
    slots: touched,
  };
  return table;
}

function remove(table: TableState, slots: number[]): void {
  const gone = new Set(slots.map((slot) => rowAt(table, slot)));
  const kept = (_: unknown, row: number): boolean => !gone.has(row);
  table.slots = table.slots.filter(kept);
  table.data = table.data.map((column) => column.filter(kept));
  number(table);
}

function add(table: TableState, slots: number[], data: Cell[][]): void {
  for (const slot of slots) {
    if (table.rowOf.has(slot)) throw new OutOfStep(`slot ${slot} twice`);
    table.rowOf.set(slot, table.slots.length);
    table.slots.push(slot);
  }
  table.data.forEach((column, index) => {
    for (let i = 0; i < slots.length; i++) column.push(data[index]?.[i] ?? null);
  });
}

function number(table: TableState): void {
  table.rowOf = new Map(table.slots.map((slot, row) => [slot, row]));
}

function rowAt(table: TableState, slot: number): number {
  const row = table.rowOf.get(slot);
  if (row === undefined) throw new OutOfStep(`no slot ${slot}`);
  return row;
}
