// A dense table over columns, of which only the rows in sight are in the document.
//
// Beyond 60 rows all have one height, so that 50,000 of them are a matter of two spacers; fewer are all
// in the document, with their texts whole. The table is a grid
// of one tab stop: arrows or j and k move the current row, which is remembered by its slot and stays
// the same while rows come, go and change around it; Enter opens it.

import { signal, useSignal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useId, useRef } from "preact/hooks";
import { address, go, preemptionPath, queuePath, setQuery, workloadPath } from "./address.ts";
import { CellView } from "./cells.tsx";
import { csv, json } from "./files.ts";
import { capital, number, unitOf, words } from "./format.ts";
import { Order, type Sorting } from "./order.ts";
import type { TableState } from "./topic_state.ts";
import type { Cell, Kind, WireColumn } from "./wire.ts";

export interface ColumnView {
  title?: string;
  hidden?: boolean;
  /** In the width of a digit; without it by the kind. */
  width?: number;
  show?: (cell: Cell, row: Row) => ComponentChildren;
}

/** The cells of one row by the names of their columns. */
export type Row = (name: string) => Cell;

export interface TableProps {
  name: string;
  caption: string;
  table: TableState | undefined;
  columns?: Record<string, ColumnView>;
  /** The names of the columns to begin with; the others follow. */
  first?: string[];
  /** `-gpus`: by this column, downwards, until the reader says otherwise. */
  sort?: string;
  /** Only these rows, by what they say. */
  only?: (row: Row) => boolean;
  empty: ComponentChildren;
  /** How many rows are in sight at most. */
  rows?: number;
  /** Made here rather than told by the server, which then has no file of it. */
  local?: boolean;
  /** What else stands in the head: links, other ways to show the same. */
  actions?: ComponentChildren;
  /** Which columns stay in a narrow window where rows are too many for cards. */
  narrow?: string[];
}

const narrowWindow = matchMedia("(max-width: 30rem)");
const narrow = signal(narrowWindow.matches);
narrowWindow.addEventListener("change", () => (narrow.value = narrowWindow.matches));
const IN_NARROW = ["unit", "reason", "amount"];
const NARROW_WIDTH = 38;

interface Shown {
  name: string;
  index: number;
  kind: Kind;
  view: ColumnView;
}

const ROW_REM = 1.75;
const SPARE = 8;
const WHOLE = 60;
const WIDTHS: Record<Kind, number> = {
  number: 9, instant: 11, duration: 11, flag: 8, word: 19, text: 20, list: 22, unit: 30,
};

export function DataTable(props: TableProps): JSX.Element {
  const { table, name, caption } = props;
  if (!table || !table.slots.length) {
    return (
      <section class="panel" aria-label={caption}>
        <header class="panel-head">
          <h2>{caption}</h2>
          {props.actions}
        </header>
        <div class="empty">{props.empty}</div>
      </section>
    );
  }
  return (
    <section class="panel" aria-label={caption}>
      <Grid {...props} table={table} key={name} />
    </section>
  );
}

function Grid(props: TableProps & { table: TableState }): JSX.Element {
  const { table, name, caption } = props;
  const id = useId();
  const scroller = useRef<HTMLDivElement>(null);
  const order = useRef(new Order());
  const drawn = useRef(new Drawn());
  const top = useSignal(0);
  const current = useSignal<number | null>(null);
  const rowHeight = ROW_REM * parseFloat(getComputedStyle(document.documentElement).fontSize);

  const columns = shownColumns(props);
  const sorting = sortingOf(name, columns, props.sort);
  const search = address.value.query.get("search") ?? "";
  const sorted = order.current.of(table, sorting, search);
  const slots = props.only ? sorted.filter((slot) => props.only!(rowOf(table, slot))) : sorted;

  const inSight = props.rows ?? 16;
  // Few rows are all there, each as high as its texts need.
  const whole = slots.length <= WHOLE;
  const start = whole ? 0 : Math.max(0, Math.min(Math.floor(top.value / rowHeight) - SPARE, slots.length - inSight - SPARE));
  const end = whole ? slots.length : Math.min(slots.length, Math.floor(top.value / rowHeight) + inSight + SPARE);
  const position = current.value === null ? -1 : slots.indexOf(current.value);

  const move = (to: number): void => {
    const next = Math.max(0, Math.min(slots.length - 1, to));
    current.value = slots[next] ?? null;
    const view = scroller.current;
    if (!view) return;
    if (whole) {
      document.getElementById(`${id}-${slots[next]}`)?.scrollIntoView({ block: "nearest" });
      return;
    }
    const head = view.querySelector("thead")?.clientHeight ?? rowHeight;
    const [above, below] = [next * rowHeight, (next + 1) * rowHeight + head];
    if (above < view.scrollTop) view.scrollTop = above;
    else if (below > view.scrollTop + view.clientHeight) view.scrollTop = below - view.clientHeight;
    top.value = view.scrollTop;
  };

  const key = (event: KeyboardEvent): void => {
    if (event.target !== event.currentTarget || event.ctrlKey || event.metaKey || event.altKey) return;
    const steps: Record<string, number> = {
      ArrowDown: position + 1, j: position + 1, ArrowUp: position - 1, k: position - 1,
      PageDown: position + inSight, PageUp: position - inSight, Home: 0, End: slots.length - 1,
    };
    const step = steps[event.key];
    if (step !== undefined) move(step);
    else if (event.key === "Enter" && position >= 0) open(columns, rowOf(table, slots[position]!));
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  const wide = columns.reduce((sum, column) => sum + widthOf(column), 0);
  const width = narrow.value && columns.length <= IN_NARROW.length ? Math.min(wide, NARROW_WIDTH) : wide;
  return (
    <>
      <header class="panel-head">
        <h2 id={`${id}-name`}>
          {caption} <span class="count">{number(slots.length)}{slots.length < table.slots.length && ` of ${number(table.slots.length)}`}</span>
        </h2>
        {props.actions}
        <Downloads name={name} table={table} slots={slots} whole={!search && !props.only && !props.local} />
      </header>
      <div
        class="scroller"
        ref={scroller}
        style={{ maxHeight: `${whole ? Math.max(30, inSight * ROW_REM) : (inSight + 1.2) * ROW_REM}rem` }}
        onScroll={(event) => (top.value = event.currentTarget.scrollTop)}
      >
        <table
          role="grid"
          class={whole ? "whole" : ""}
          tabIndex={0}
          aria-labelledby={`${id}-name`}
          aria-rowcount={slots.length + 1}
          aria-activedescendant={position >= start && position < end ? `${id}-${slots[position]}` : undefined}
          style={{ minWidth: whole ? "" : `${width}ch` }}
          onKeyDown={key}
          onFocus={() => {
            if (current.value === null && slots.length) current.value = slots[0]!;
          }}
        >
          <colgroup>
            {columns.map((column) => (
              <col key={column.name} style={{ width: whole || flexible(columns, column) ? "auto" : `${widthOf(column)}ch` }} />
            ))}
          </colgroup>
          <thead>
            <tr aria-rowindex={1}>
              {columns.map((column) => (
                <Head key={column.name} table={name} column={column} sorting={sorting} />
              ))}
            </tr>
          </thead>
          <tbody>
            {start > 0 && <Spacer height={start * rowHeight} />}
            {drawn.current.rows(table, columns, slots, start, end, current.value, (slot, index, selected) => (
              <tr key={slot} id={`${id}-${slot}`} aria-rowindex={index} aria-selected={selected} onClick={() => (current.value = slot)}>
                {cellsOf(table, columns, slot)}
              </tr>
            ))}
            {end < slots.length && <Spacer height={(slots.length - end) * rowHeight} />}
          </tbody>
        </table>
      </div>
      {!slots.length && <div class="empty">No row of {table.slots.length} has “{search}”.</div>}
    </>
  );
}

function cellsOf(table: TableState, columns: Shown[], slot: number): JSX.Element[] {
  const row = table.rowOf.get(slot)!;
  return columns.map((column) => {
    const { name, index, kind, view } = column;
    const cell = table.data[index]?.[row] ?? null;
    return (
      <td key={name} class={`${kind} c-${name}`} data-title={titleOf(column)}>
        {view.show ? view.show(cell, rowOf(table, slot)) : <CellView cell={cell} kind={kind} name={name} />}
      </td>
    );
  });
}

type DrawRow = (slot: number, index: number, selected: boolean) => JSX.Element;

/** The rows in sight as they were drawn: one that is the same element is not looked at again. */
class Drawn {
  private made = new Map<number, { index: number; selected: boolean; element: JSX.Element }>();
  private table: TableState | null = null;
  private columns = "";

  rows(table: TableState, columns: Shown[], slots: readonly number[], start: number, end: number, current: number | null, draw: DrawRow): JSX.Element[] {
    const names = columns.map(({ name }) => name).join();
    const follows = table.columns === this.table?.columns && table.version <= this.table.version + 1;
    const kept = follows && names === this.columns ? this.made : new Map<never, never>();
    const changed = table === this.table ? NOTHING : table.changed.slots;
    this.made = new Map();
    const rows = slots.slice(start, end).map((slot, i) => {
      const [index, selected] = [start + i + 2, slot === current];
      const known = kept.get(slot);
      const same = known?.index === index && known.selected === selected && !changed.has(slot);
      const element = same ? known.element : draw(slot, index, selected);
      this.made.set(slot, { index, selected, element });
      return element;
    });
    [this.table, this.columns] = [table, names];
    return rows;
  }
}

const NOTHING: ReadonlySet<number> = new Set();

function Spacer({ height }: { height: number }): JSX.Element {
  return <tr aria-hidden="true" class="spacer" style={{ height: `${height}px` }} />;
}

function Head({ table, column, sorting }: { table: string; column: Shown; sorting: Sorting | null }): JSX.Element {
  const { name, kind, index } = column;
  const sorted = sorting?.column === index ? (sorting.descending ? "descending" : "ascending") : "none";
  // Numbers and times are looked at from the largest, texts from the first.
  const downFirst = kind === "number" || kind === "duration";
  const down = sorted === "none" ? downFirst : sorted === "ascending";
  const others = address.value.query.getAll("sort").filter((each) => !each.startsWith(`${table}:`));
  return (
    <th scope="col" class={kind} aria-sort={sorted}>
      <button type="button" onClick={() => setQuery("sort", [...others, `${table}:${down ? "-" : ""}${name}`])}>
        {titleOf(column)}
        <span class="arrow" aria-hidden="true">
          {sorted === "none" ? "" : sorted === "ascending" ? "▴" : "▾"}
        </span>
      </button>
    </th>
  );
}

interface DownloadsProps {
  name: string;
  table: TableState;
  slots: readonly number[];
  /** All rows are shown: the server's file says the same. */
  whole: boolean;
}

function Downloads({ name, table, slots, whole }: DownloadsProps): JSX.Element {
  const { wire: page } = address.value;
  const parameters = serverQuery();
  const links = ["csv", "json"].map((form) => {
    const href = `/api/download/${page}/${name}.${form}${parameters && `?${parameters}`}`;
    const file = `${page}-${name}.${form}`;
    const made = (event: Event): void => {
      if (whole) return;
      event.preventDefault();
      save(file, form === "csv" ? csv(table, slots) : json(table, slots));
    };
    return (
      <a key={form} href={href} download={file} onClick={made} aria-label={`${form.toUpperCase()} of ${name}`}>
        {form.toUpperCase()}
      </a>
    );
  });
  return <span class="downloads">{links}</span>;
}

/** How the page is shown, which the server need not know. */
const VIEW = new Set(["sort", "search", "by", "over", "measure"]);

/** The parameters that the server is to know: the subject and filters, not how rows are sorted. */
export function serverQuery(): string {
  const { subject, query } = address.value;
  const result = new URLSearchParams(subject);
  for (const [name, value] of query) {
    if (!VIEW.has(name)) result.append(name, value);
  }
  return result.toString();
}


function save(file: string, content: string): void {
  const url = URL.createObjectURL(new Blob([content]));
  const link = document.createElement("a");
  link.href = url;
  link.download = file;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

function shownColumns(props: TableProps): Shown[] {
  const { table, columns = {}, first = [] } = props;
  const all = (table?.columns ?? []).map(([name, kind], index) => ({
    name, index, kind, view: columns[name] ?? {},
  }));
  const place = (column: Shown): number => {
    const found = first.indexOf(column.name);
    return found < 0 ? first.length : found;
  };
  // Of a few rows the columns that say nothing are left out, unless they are what one looks for.
  const few = (table?.slots.length ?? 0) <= WHOLE;
  const says = ({ name, index, view }: Shown): boolean =>
    !view.hidden && (!few || first.includes(name) || (table?.data[index]?.some(isSomething) ?? false));
  const found = all.filter(says).sort((a, b) => place(a) - place(b) || a.index - b.index);
  if (few || !narrow.value) return found;
  const wanted = props.narrow ?? IN_NARROW;
  const kept = found.filter(({ name }) => wanted.includes(name));
  return kept.length > 1 ? kept.sort((a, b) => wanted.indexOf(a.name) - wanted.indexOf(b.name)) : found;
}

const isSomething = (cell: Cell): boolean =>
  cell !== null && cell !== "" && cell !== false && !(Array.isArray(cell) && !cell.length);

function sortingOf(name: string, columns: Shown[], otherwise = ""): Sorting | null {
  const asked = address.value.query.getAll("sort").find((each) => each.startsWith(`${name}:`));
  const said = asked ? asked.slice(name.length + 1) : otherwise;
  const column = columns.find((each) => each.name === said.replace(/^-/, ""));
  return column ? { column: column.index, descending: said.startsWith("-") } : null;
}

const places = new WeakMap<readonly WireColumn[], Map<string, number>>();

export function rowOf(table: TableState, slot: number): Row {
  let place = places.get(table.columns);
  if (!place) places.set(table.columns, (place = new Map(table.columns.map(([name], index) => [name, index]))));
  const row = table.rowOf.get(slot) ?? -1;
  return (name) => table.data[place.get(name) ?? -1]?.[row] ?? null;
}

/** What takes the room that is left: texts, units where there are no texts. */
function flexible(columns: Shown[], { kind, view }: Shown): boolean {
  const isText = (column: Shown): boolean =>
    !column.view.width && (column.kind === "text" || column.kind === "list");
  return kind === "unit" ? !columns.some(isText) : !view.width && (kind === "text" || kind === "list");
}
/** As wide as its cells mostly are, and never narrower than its title. */
const widthOf = (column: Shown): number =>
  Math.max(column.view.width ?? WIDTHS[column.kind] ?? WIDTHS.text, titleOf(column).length + 4);
const titleOf = ({ name, view }: Shown): string => view.title ?? capital(words(name));

/** Open what a row is about: the first of its columns that leads somewhere. */
function open(columns: Shown[], row: Row): void {
  for (const { name, kind } of columns) {
    const cell = row(name);
    if (typeof cell !== "string" || !cell) continue;
    if (kind === "unit" && unitOf(cell)) return go(workloadPath(cell));
    if (name === "preemption" || name === "record") return go(preemptionPath(cell));
    if (name === "queue" || name === "clusterQueue") return go(queuePath(cell));
  }
}
