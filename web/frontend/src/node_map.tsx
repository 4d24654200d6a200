// All nodes on one canvas, a block each, its devices as cells: what is where, at a glance.
//
// A canvas has nothing to read or to focus, so the same stands in a table one button away, and the
// map itself is walked with the arrow keys, which say the node they are at. What is under the
// pointer is found by arithmetic. It is drawn when data, theme or width change, and never otherwise.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useId, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { number } from "./format.ts";
import { PARTS, type Part, Swatch } from "./gpu_bar.tsx";
import { theme } from "./theme.ts";
import type { TableState } from "./topic_state.ts";
import type { Cell } from "./wire.ts";

interface Block {
  name: string;
  pool: string;
  counts: Record<Part, number>;
  total: number;
  units: string[];
  cordoned: boolean;
}

interface Layout {
  columns: number;
  /** Width and height of a block with its gap, in CSS pixels. */
  width: number;
  height: number;
  cell: number;
  perRow: number;
}

const GAP = 3;
const MOST_CELLS = 16;

/** All nodes, or those of `slots` alone. */
export function NodeMap({ table, slots, legend = true }: { table: TableState; slots?: number[]; legend?: boolean }): JSX.Element {
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = useSignal(0);
  const at = useSignal(-1);
  const order = useRef<{ of: unknown; size: number; slots: number[] }>({ of: null, size: 0, slots: [] });
  const blocks = useMemo(() => {
    // Names are sorted only when nodes come or go.
    const { rowOf } = table;
    const wanted = slots && new Set(slots);
    if (order.current.of !== rowOf || order.current.size !== rowOf.size) {
      order.current = { of: rowOf, size: rowOf.size, slots: sortedSlots(table) };
    }
    return blocksOf(table, wanted ? order.current.slots.filter((slot) => wanted.has(slot)) : order.current.slots);
  }, [table, slots]);
  const said = useId();
  const layout = layoutOf(blocks, width.value);
  const rows = Math.ceil(blocks.length / Math.max(1, layout.columns));
  const height = rows * layout.height;
  const chosen = theme.value;

  useLayoutEffect(() => {
    const element = frame.current;
    if (!element) return;
    const observer = new ResizeObserver(() => (width.value = element.clientWidth));
    observer.observe(element);
    width.value = element.clientWidth;
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (canvas.current && width.value) draw(canvas.current, blocks, layout);
  }, [blocks, width.value, chosen]);

  const hit = (event: MouseEvent): void => {
    const column = Math.floor(event.offsetX / layout.width);
    const index = Math.floor(event.offsetY / layout.height) * layout.columns + column;
    at.value = column < layout.columns && index < blocks.length ? index : -1;
  };
  const key = (event: KeyboardEvent): void => {
    const steps: Record<string, number> = {
      ArrowRight: at.value + 1, l: at.value + 1, ArrowLeft: at.value - 1, h: at.value - 1,
      ArrowDown: at.value + layout.columns, j: at.value + layout.columns,
      ArrowUp: at.value - layout.columns, k: at.value - layout.columns, Home: 0, End: blocks.length - 1,
    };
    const step = steps[event.key];
    if (step === undefined) return;
    at.value = Math.max(0, Math.min(blocks.length - 1, step));
    event.preventDefault();
    event.stopPropagation();
  };
  const block = blocks[at.value];
  return (
    <div class="node-map">
      <div class="map-frame" ref={frame}>
        <canvas
          ref={canvas}
          role="application"
          aria-roledescription="map of nodes"
          aria-label={`${blocks.length} nodes; arrow keys move from node to node`}
          aria-describedby={said}
          tabIndex={0}
          style={{ width: `${width.value}px`, height: `${height}px` }}
          onMouseMove={hit}
          onMouseLeave={() => (at.value = -1)}
          onFocus={() => (at.value = Math.max(0, at.value))}
          onBlur={() => (at.value = -1)}
          onKeyDown={key}
        />
        {block && <Pointer index={at.value} layout={layout} />}
      </div>
      <p class="node-said" id={said} aria-live="polite">
        {block ? <Told block={block} /> : legend && <MapLegend />}
      </p>
    </div>
  );
}

/** A frame around the node that is looked at, so that the map need not be drawn again. */
function Pointer({ index, layout }: { index: number; layout: Layout }): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => place.current?.scrollIntoView({ block: "nearest", inline: "nearest" }), [index]);
  return (
    <div
      class="map-at"
      ref={place}
      style={{
        left: `${(index % layout.columns) * layout.width - 1}px`,
        top: `${Math.floor(index / layout.columns) * layout.height - 1}px`,
        width: `${layout.width}px`,
        height: `${layout.height}px`,
      }}
    />
  );
}

function Told({ block }: { block: Block }): JSX.Element {
  const parts = PARTS.filter((part) => block.counts[part]).map((part) => `${block.counts[part]} ${part}`);
  return (
    <>
      <strong>{block.name}</strong>
      {block.pool && <span class="soft"> {block.pool}</span>} {number(block.total)}
      {block.cordoned && " · cordoned"}
      {parts.length ? ` · ${parts.join(", ")}` : ""}
      {block.units.length ? ` · ${block.units.map((unit) => unit.split("/").slice(-2).join("/")).join(", ")}` : ""}
    </>
  );
}

export function MapLegend(): JSX.Element {
  return (
    <span class="map-legend">
      {PARTS.map((part) => (
        <span key={part}>
          <Swatch part={part} />
          {part}
        </span>
      ))}
      <span>
        <svg class="swatch" width="14" height="14" aria-hidden="true">
          <rect class="cordon" x="1" y="1" width="12" height="12" />
        </svg>
        cordoned
      </span>
    </span>
  );
}

type Read = (row: number) => Cell;

function reading(table: TableState, name: string): Read {
  const index = table.columns.findIndex(([each]) => each === name);
  return (row) => table.data[index]?.[row] ?? null;
}

/** Slots by pool and name, with numbers in the order in which people count: node-9 before node-10. */
function sortedSlots(table: TableState): number[] {
  const [name, pool] = [reading(table, "node"), reading(table, "pool")];
  const order = new Intl.Collator("en", { numeric: true }).compare;
  const rows = table.slots.map((slot, row) => ({ slot, name: String(name(row)), pool: String(pool(row)) }));
  rows.sort((a, b) => (a.pool === b.pool ? order(a.name, b.name) : order(a.pool, b.pool)));
  return rows.map(({ slot }) => slot);
}

function blocksOf(table: TableState, slots: number[]): Block[] {
  const [name, pool, units, cordoned] = ["node", "pool", "units", "cordoned"].map((each) => reading(table, each)) as [Read, Read, Read, Read];
  const counts = PARTS.map((part) => reading(table, part));
  return slots.map((slot): Block => {
    const row = table.rowOf.get(slot)!;
    const found = counts.map((count) => Math.max(0, Number(count(row) ?? 0)));
    return {
      name: String(name(row) ?? ""),
      pool: String(pool(row) ?? ""),
      counts: Object.fromEntries(PARTS.map((part, index) => [part, found[index]])) as Record<Part, number>,
      total: found.reduce((sum, each) => sum + each, 0),
      units: (units(row) as string[] | null) ?? [],
      cordoned: cordoned(row) === true,
    };
  });
}

function layoutOf(blocks: Block[], width: number): Layout {
  const most = Math.min(MOST_CELLS, blocks.reduce((found, block) => Math.max(found, block.total), 1));
  const cell = blocks.length > 2000 ? 3 : blocks.length > 400 ? 5 : blocks.length > 60 ? 8 : 12;
  const perRow = most <= 4 ? most : Math.ceil(most / 2);
  const lines = Math.ceil(most / perRow);
  const block = perRow * cell + GAP + 2;
  return {
    columns: Math.max(1, Math.floor(width / block)),
    width: block,
    height: lines * cell + GAP + 2,
    cell,
    perRow,
  };
}

function draw(canvas: HTMLCanvasElement, blocks: Block[], layout: Layout): void {
  const ratio = devicePixelRatio || 1;
  const height = Math.ceil(blocks.length / layout.columns) * layout.height;
  const width = canvas.clientWidth || canvas.parentElement!.clientWidth;
  canvas.width = Math.ceil(width * ratio);
  canvas.height = Math.ceil(height * ratio);
  const context = canvas.getContext("2d");
  if (!context) return;
  context.scale(ratio, ratio);
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string): string => style.getPropertyValue(name).trim();
  const colours = {
    line: colour("--line-strong"), working: colour("--working"), idle: colour("--idle"),
    leaving: colour("--text-soft"), back: colour("--back"), accent: colour("--accent"),
    text: colour("--text"), raised: colour("--back-raised"),
  };
  blocks.forEach((block, index) => {
    const x = (index % layout.columns) * layout.width + 1;
    const y = Math.floor(index / layout.columns) * layout.height + 1;
    drawBlock(context, block, x, y, layout, colours);
  });
}

type Colours = Record<"line" | "working" | "idle" | "leaving" | "back" | "accent" | "text" | "raised", string>;

function drawBlock(
  context: CanvasRenderingContext2D, block: Block, x: number, y: number, layout: Layout, colours: Colours,
): void {
  const { cell, perRow } = layout;
  // More devices than cells (cores, say): the cells share what there is.
  const cells = Math.min(MOST_CELLS, block.total);
  const scale = block.total ? cells / block.total : 0;
  let drawn = 0;
  let upTo = 0;
  for (const part of PARTS) {
    upTo += block.counts[part] * scale;
    for (; drawn < Math.round(upTo); drawn++) {
      const left = x + (drawn % perRow) * cell;
      const top = y + Math.floor(drawn / perRow) * cell;
      drawCell(context, part, left, top, cell < 5 ? cell : cell - 1, colours);
    }
  }
  if (block.cordoned || !cells) {
    context.strokeStyle = colours.leaving;
    context.lineWidth = 1;
    context.setLineDash([2, 2]);
    context.strokeRect(x - 0.5, y - 0.5, perRow * cell, layout.height - GAP - 2);
    context.setLineDash([]);
  }
}

function drawCell(
  context: CanvasRenderingContext2D, part: Part, x: number, y: number, size: number, colours: Colours,
): void {
  const middle = size / 2;
  if (part === "working") {
    context.fillStyle = colours.working;
    context.fillRect(x, y, size, size);
    return;
  }
  if (size < 4) {
    // Too small for a pattern: by how much is filled, which the bar above and the table tell exactly.
    context.fillStyle = part === "idle" ? colours.idle : part === "free" ? colours.raised : colours.line;
    context.fillRect(x, y, size, part === "free" || part === "idle" ? size : size / 2);
    return;
  }
  context.strokeStyle = colours.line;
  context.lineWidth = 1;
  if (part === "idle") {
    context.fillStyle = colours.idle;
    context.fillRect(x, y + middle, size, size - middle);
    context.strokeStyle = colours.idle;
  } else if (part === "claimed") {
    context.fillStyle = colours.leaving;
    context.fillRect(x + middle - 1, y + middle - 1, 2, 2);
  } else if (part === "leaving") {
    context.strokeStyle = colours.leaving;
    context.beginPath();
    context.moveTo(x, y + size);
    context.lineTo(x + size, y);
    context.stroke();
  }
  context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
}
