// Study: what `reprieve simulate` wrote, opened from disk: policies side by side, measure by measure.

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { duration, number, words } from "../format.ts";
import { FileDrop } from "../file_drop.tsx";
import { tableOfObjects } from "../local_table.ts";
import { Title } from "../parts.tsx";
import { type Mean, type Report, displacedOverTime, meansOf, reportOf } from "../report.ts";
import { DataTable } from "../table.tsx";
import type { JsonObject } from "../wire.ts";

const opened = signal<Report | null>(null);
const error = signal("");

function take(text: string, name: string): void {
  try {
    error.value = "";
    opened.value = reportOf(text, name);
  } catch (fault) {
    error.value = fault instanceof Error ? fault.message : String(fault);
  }
}

export function Study(): JSX.Element {
  const report = opened.value;
  return (
    <>
      <Title command="reprieve simulate study.yaml -o report.html">Study</Title>
      <FileDrop accept=".csv,.json,.jsonl" what="results.csv or decisions.jsonl of a study" take={take} />
      {error.value && <p role="alert" class="word attention">{error.value}</p>}
      {!report && !error.value && (
        <p class="soft">
          A study replays a trace of jobs under several policies and writes these files beside its report. They are read here, and
          sent nowhere.
        </p>
      )}
      {report?.kind === "results" && <Results report={report} />}
      {report?.kind === "decisions" && <Decisions report={report} />}
      {report && (
        <DataTable key={report.name} name="rows" local caption={report.name} table={tableOfObjects(report.rows, { load: "number", seed: "number" })} empty="" rows={18} />
      )}
    </>
  );
}

const shown = (name: string, value: number): string =>
  name.endsWith("_s") ? duration(Math.round(value)) : name.endsWith("share") ? `${(value * 100).toFixed(1)} %` : number(value);

const title = (name: string): string => words(name.replace(/_s$/, ""));

function Results({ report }: { report: Report }): JSX.Element {
  const { measures: all, means } = meansOf(report.rows);
  // What is nothing under each policy is in the table below alone.
  const measures = all.filter((name) => means.some((mean) => mean.means[name]));
  const loads = [...new Set(means.map((mean) => mean.load))];
  return (
    <>
      {loads.map((load) => {
        const here = means.filter((mean) => mean.load === load);
        return (
          <section key={load} class="panel" aria-label={`load ${load}`}>
            <header class="panel-head">
              <h2>Load {load} <span class="count">means over {here[0]?.runs} runs</span></h2>
            </header>
            <div class="measures">
              {measures.map((name) => <Measure key={name} name={name} means={here} />)}
            </div>
          </section>
        );
      })}
    </>
  );
}

function Measure({ name, means }: { name: string; means: Mean[] }): JSX.Element {
  const most = Math.max(...means.map((mean) => mean.means[name] ?? 0), 1e-9);
  return (
    <table class="measure">
      <caption>{title(name)}</caption>
      <tbody>
        {means.map(({ policy, means: found }) => {
          const value = found[name] ?? null;
          return (
            <tr key={policy}>
              <th scope="row">{policy}</th>
              <td class="bar">
                <svg width="100%" height="10" aria-hidden="true">
                  <rect class="part working" width={`${(Math.max(0, value ?? 0) / most) * 100}%`} height="10" />
                </svg>
              </td>
              <td class="number">{value === null ? "–" : shown(name, value)}</td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}

function Decisions({ report }: { report: Report }): JSX.Element {
  const { hours, series } = displacedOverTime(report.rows);
  const totals = [...series].map(([policy, counts]): JsonObject => ({ policy, displaced: counts.at(-1) ?? 0 }));
  return (
    <>
      <section class="panel" aria-label="Displacements over time">
        <header class="panel-head"><h2>Displacements over time <span class="count">of the first run of each policy</span></h2></header>
        {hours.length ? <Chart hours={hours} series={series} /> : <p class="empty">No work was displaced.</p>}
      </section>
      <DataTable name="totals" local caption="In all" table={tableOfObjects(totals)} empty="" />
    </>
  );
}

function Chart({ hours, series }: { hours: number[]; series: Map<string, (number | null)[]> }): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    let gone = false;
    let remove = (): void => {};
    void import("../time_series.ts").then(({ draw }) => {
      if (!gone && place.current) remove = draw(place.current, hours, series);
    });
    return () => {
      gone = true;
      remove();
    };
  }, [hours, series]);
  return <div class="chart" ref={place} />;
}
