// The life of a workload as one bar over all attempts, drawn to the scale of time.
//
// What it waited is a frame, what it ran is filled, leaving is striped; a cross stands where it was
// preempted and leads to the decision. Instants that are worked out rather than recorded have a dashed edge.
// The same stands below in words and to the second.

import type { JSX } from "preact";
import { go, preemptionPath } from "./address.ts";
import { Moment, Word } from "./cells.tsx";
import { second } from "./clock.ts";
import { duration, instant, shortInstant } from "./format.ts";
import { Patterns } from "./gpu_bar.tsx";
import { plural } from "./parts.tsx";
import { rowOf } from "./table.tsx";
import type { TableState } from "./topic_state.ts";
import type { Cell } from "./wire.ts";

interface Segment {
  /** null: earlier than is known. */
  begin: number | null;
  /** null: it goes on. */
  end: number | null;
  state: string;
  gpus: number | null;
  exact: boolean;
  preemption: string;
}

export function Life({ table }: { table: TableState }): JSX.Element | null {
  const segments = segmentsOf(table);
  const at = second.value;
  const known = segments.flatMap(({ begin, end }) => [begin, end ?? at]).filter((each) => each !== null);
  if (!known.length) return null;
  const latest = Math.max(...known, Math.min(...known) + 1);
  const earliest = Math.min(...known);
  // What began earlier than is known gets a little room before all that is known.
  const first = segments[0]?.begin === null ? earliest - (latest - earliest || 60) * 0.08 : earliest;
  const place = (when: number): number => ((when - first) / (latest - first)) * 100;
  const marks = marksOf(segments);
  const ticks = ticksOf(first, latest);
  const said = segments.map((each) => `${each.state} ${long(each, at)}`).join(", ");
  return (
    <section class="panel life" aria-label="Life">
      <Patterns />
      <svg role="img" aria-label={`One bar of its life: ${said}`} width="100%" height="62">
        {ticks.filter((tick) => place(tick) < 93).map((tick) => (
          <g key={tick}>
            <line class="tick" x1={`${place(tick)}%`} x2={`${place(tick)}%`} y1="16" y2="60" />
            <text x={`${place(tick)}%`} y="11" dx="3" class="tick-text">{tickText(tick, at, ticks)}</text>
          </g>
        ))}
        {segments.map((each, index) => {
          const x = place(each.begin ?? first);
          const width = Math.max(0.15, place(each.end ?? at) - x);
          return (
            <g key={index}>
              <rect class={`span ${look(each.state)}`} x={`${x}%`} width={`${width}%`} y="24" height="30">
                <title>{`${each.state}, ${long(each, at)}`}</title>
              </rect>
              {!each.exact && <line class="vague" x1={`${x}%`} x2={`${x}%`} y1="20" y2="58" />}
            </g>
          );
        })}
        {marks.map((each) => (
          <svg key={each.preemption} class="mark" x={`${place(each.at)}%`} y="39" overflow="visible" onClick={() => go(preemptionPath(each.preemption))}>
            <circle r="10" class="hit" />
            <path d="m-6-6 12 12m0-12-12 12" />
            <title>{`preempted at ${instant(each.at)}: open the decision`}</title>
          </svg>
        ))}
      </svg>
      <ol class="life-list">
        {segments.map((each, index) => (
          <li key={index}>
            <span class="when">{each.begin === null ? "earlier" : <>{!each.exact && "about "}<Moment at={each.begin} /></>}</span>
            <span><Word word={each.state} /></span>
            <span class="soft">
              {long(each, at)}
              {each.gpus !== null && each.gpus > 0 && ` · ${plural(each.gpus, "GPU")}`}
            </span>
            {marks.some((mark) => mark.index === index) && <a href={preemptionPath(each.preemption)}>preempted: the decision</a>}
          </li>
        ))}
      </ol>
    </section>
  );
}

function long({ begin, end }: Segment, at: number): string {
  if (begin === null) return "for longer than is known";
  return `${duration(Math.max(0, Math.round((end ?? at) - begin)))}${end === null ? " so far" : ""}`;
}

/** Seconds only where ticks are less than a minute apart. */
function tickText(tick: number, now: number, ticks: number[]): string {
  const said = shortInstant(tick, now);
  return ticks.every((each) => Math.abs(each % 60) < 1) ? said.replace(/:00$/, "") : said;
}

/** Where it was preempted: the last of the segments that name a preemption. */
function marksOf(segments: Segment[]): { preemption: string; index: number; at: number }[] {
  const marks = new Map<string, { preemption: string; index: number; at: number }>();
  segments.forEach(({ preemption, state, begin, end }, index) => {
    const at = look(state) === "leaves" ? (begin ?? end) : (end ?? begin);
    if (preemption && at !== null) marks.set(preemption, { preemption, index, at });
  });
  return [...marks.values()];
}

function look(state: string): "waits" | "runs" | "leaves" {
  if (/wait|pend|queue|gate|suspend|start/i.test(state)) return "waits";
  return /leav|evict|stop|terminat|displac/i.test(state) ? "leaves" : "runs";
}

function segmentsOf(table: TableState): Segment[] {
  const amount = (cell: Cell): number | null => (typeof cell === "number" ? cell : null);
  return table.slots
    .map((slot) => rowOf(table, slot))
    .map((row): Segment => ({
      begin: amount(row("begin")),
      end: amount(row("end")),
      state: String(row("state") ?? ""),
      gpus: amount(row("gpus")),
      exact: row("exact") !== false,
      preemption: String(row("preemption") ?? ""),
    }))
    .filter((each) => each.begin !== null || each.end !== null)
    .sort((a, b) => (a.begin ?? -Infinity) - (b.begin ?? -Infinity) || 0);
}

const STEPS = [1, 5, 15, 60, 300, 900, 1800, 3600, 10_800, 21_600, 43_200, 86_400, 604_800, 2_592_000];

function ticksOf(from: number, to: number): number[] {
  const step = STEPS.find((each) => (to - from) / each <= (innerWidth < 700 ? 3 : 7)) ?? STEPS.at(-1)!;
  const zone = new Date(from * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at < to; at += step) found.push(at);
  return found.slice(0, 12);
}
