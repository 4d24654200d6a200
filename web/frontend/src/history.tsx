// Over time: what teams or queues held, waited for and lost, and the way back to an instant.
//
// It is asked for at the pace of the samples, not with each change of the page around it.

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { address, setQuery } from "./address.ts";
import { instant, number, shortInstant } from "./format.ts";
import { gpuHours } from "./parts.tsx";
import { DataTable } from "./table.tsx";
import { type PageState, begun } from "./topic_state.ts";
import { type Json, type Snapshot, errorOf, isObject, numberOf, textOf } from "./wire.ts";

const RANGES: [range: string, title: string][] = [["", "last hour"], ["day", "day"], ["week", "week"]];
const MEASURES: [measure: string, title: string, unit: string][] = [
  ["", "in use", "GPUs"],
  ["idle", "idle", "GPUs"],
  ["waiting", "waiting", "GPUs that pending work requests"],
  ["preempted", "preemptions", "preempted units"],
  ["lost", "lost GPU-hours", "GPU-hours lost"],
];

interface Told {
  url: string;
  state: PageState | null;
  error: string;
}

const told = signal<Told>({ url: "", state: null, error: "" });

async function ask(url: string): Promise<number> {
  try {
    const answer = await fetch(url, { cache: "no-store" });
    if (!answer.ok) throw new Error(await errorOf(answer));
    const state = begun((await answer.json()) as Snapshot);
    told.value = { url, state, error: "" };
    return numberOf(state.values["every"]) ?? 60;
  } catch (fault) {
    const kept = told.value.url === url ? told.value.state : null;
    told.value = { url, state: kept, error: fault instanceof Error ? fault.message : "The server does not answer." };
    return 15;
  }
}

function useHistory(url: string): Told {
  useEffect(() => {
    let timer = 0;
    let over = false;
    const turn = async (): Promise<void> => {
      const every = document.hidden ? 15 : await ask(url);
      if (!over) timer = window.setTimeout(() => void turn(), Math.max(2, every) * 1000);
    };
    void turn();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [url]);
  return told.value.url === url ? told.value : { url, state: null, error: "" };
}

export function History({ by, scrub }: { by: "team" | "queue"; scrub?: boolean }): JSX.Element {
  const { query } = address.value;
  const [range, measure] = [query.get("over") ?? "", query.get("measure") ?? ""];
  const wanted = new URLSearchParams({ by });
  if (range) wanted.set("range", range);
  if (measure) wanted.set("measure", measure);
  for (const name of ["ns", "resource"]) for (const value of query.getAll(name)) wanted.append(name, value);
  const { state, error } = useHistory(`/api/page/history?${wanted}`);
  const [, , unit] = MEASURES.find(([name]) => name === measure) ?? MEASURES[0]!;
  return (
    <section class="panel" aria-label="Over time">
      <header class="panel-head">
        <h2>Over time <span class="count">by {by}</span></h2>
        <div class="choice" role="group" aria-label="What is drawn">
          {MEASURES.map(([name, title]) => (
            <button key={name} type="button" aria-pressed={measure === name} onClick={() => setQuery("measure", [name])}>{title}</button>
          ))}
        </div>
        <div class="choice" role="group" aria-label="How far back">
          {RANGES.map(([name, title]) => (
            <button key={name} type="button" aria-pressed={range === name} onClick={() => setQuery("over", [name])}>{title}</button>
          ))}
        </div>
      </header>
      {error && <p class="empty" role="status">{error}</p>}
      {state && textOf(state.values["source"]) && <p class="count source">{textOf(state.values["source"])}</p>}
      {!state && !error && <p class="empty">Loading…</p>}
      {state && <Drawn state={state} unit={unit} scrub={scrub ?? false} lost={measure === "lost"} />}
      {scrub && state && <Scrubber values={state.values} />}
      {state && (
        <DataTable
          name="teams"
          local
          caption={`In all, ${RANGES.find(([name]) => name === range)?.[1] ?? ""}`}
          table={state.tables["teams"]}
          columns={{
            team: { title: by === "team" ? "Team" : "Queue" },
            working: { title: "GPU-hours in use" },
            idle: { title: "GPU-hours idle" },
            waiting: { title: "GPU-hours waited for" },
            preempted: { title: "Preempted units" },
            lost: { title: "Work lost", show: gpuHours },
          }}
          rows={8}
          empty="There is no sample yet."
        />
      )}
    </section>
  );
}

function Drawn({ state, unit, scrub, lost }: { state: PageState; unit: string; scrub: boolean; lost: boolean }): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const { times, series } = useMemo(() => linesOf(state, lost), [state, lost]);
  useEffect(() => {
    if (!series.size) return;
    let gone = false;
    let remove = (): void => {};
    void import("./time_series.ts").then(({ drawTimes }) => {
      if (!gone && place.current) remove = drawTimes(place.current, times, series, unit, scrub ? pick : null);
    });
    return () => {
      gone = true;
      remove();
    };
  }, [times, series, unit]);
  if (!series.size) return <p class="empty">There is no sample yet: the first one comes within {number(numberOf(state.values["every"]) ?? 60)} s.</p>;
  return <div class="chart" ref={place} role="img" aria-label={`${unit} over time; the table below has the sums`} />;
}

function linesOf(state: PageState, lost: boolean): { times: number[]; series: Map<string, (number | null)[]> } {
  const { values } = state;
  const times = Array.isArray(values["times"]) ? values["times"].map(Number) : [];
  const lines = isObject(values["lines"]) ? values["lines"] : {};
  const rest = numberOf(values["others"]) ?? 0;
  const scale = lost ? 3600 : 1;
  const series = new Map(
    Object.entries(lines).map(([name, points]) => [
      name === "others" && rest ? `${rest} others` : name,
      (points as Json[]).map((point) => (typeof point === "number" ? point / scale : null)),
    ]),
  );
  return { times, series };
}

let pause = 0;

function pick(at: number): void {
  clearTimeout(pause);
  pause = window.setTimeout(() => setQuery("at", [at.toFixed(0)]), 150);
}

/** The page as it was at an instant, by a slider. */
function Scrubber({ values }: { values: Record<string, Json> }): JSX.Element | null {
  const [oldest, to, from] = [numberOf(values["oldest"]), numberOf(values["to"]), numberOf(values["from"])];
  if (oldest === null || to === null || from === null || to - oldest < 2) return null;
  const at = Number(address.value.query.get("at") ?? to);
  const begin = Math.max(oldest, Math.min(from, at));
  return (
    <p class="scrubber">
      <label for="scrubber">The page as it was at <strong>{shortInstant(at, to)}</strong></label>
      <input
        id="scrubber"
        type="range"
        min={begin.toFixed(0)}
        max={Math.ceil(to).toFixed(0)}
        step={Math.max(1, Math.round(numberOf(values["every"]) ?? 60))}
        value={at.toFixed(0)}
        aria-valuetext={instant(at)}
        onInput={(event) => pick(Number(event.currentTarget.value))}
      />
      {address.value.query.has("at") && <button type="button" onClick={() => setQuery("at", [])}>Back to now</button>}
    </p>
  );
}
