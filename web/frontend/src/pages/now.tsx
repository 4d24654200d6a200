// Now: where the devices are, who holds, who waits, the nodes, and the last hour.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { address, inNamespace, setQuery, to } from "../address.ts";
import { Word } from "../cells.tsx";
import { instant, number } from "../format.ts";
import { Rest } from "../generic.tsx";
import { type Amounts, GpuBar, Patterns } from "../gpu_bar.tsx";
import { Domains } from "../domain_map.tsx";
import { History } from "../history.tsx";
import { NodeMap } from "../node_map.tsx";
import { Figures, Title, Unseen, gpuHours, plural } from "../parts.tsx";
import { DataTable } from "../table.tsx";
import type { PageState, TableState } from "../topic_state.ts";
import { HolderTree } from "../tree.tsx";
import { type JsonObject, isObject, textOf } from "../wire.ts";

const SHOWN = ["bar", "gpus", "counts", "hour", "others", "unseen", "holders", "waiters", "nodes", "sampled", "levels"];

export function Now({ state }: { state: PageState }): JSX.Element {
  const { values, tables } = state;
  const bar = values["bar"] ?? values["gpus"];
  const resource = textOf(values["resource"]);
  return (
    <>
      <Patterns />
      <Title command={`reprieve get holders${inNamespace()}`}>
        Now <span class="soft resource">{resource}</span>
      </Title>
      {typeof values["sampled"] === "number" && (
        <p class="then" role="status">
          This is the page as it was at {instant(values["sampled"])}. <button type="button" onClick={() => setQuery("at", [])}>Back to now</button>
        </p>
      )}
      {isObject(bar) ? (
        <section class="panel"><GpuBar amounts={bar as Amounts} label={label(resource)} /></section>
      ) : (
        <section class="panel"><p class="empty">Totals are shown to those who see the whole cluster, or where at least three tenants hold.</p></section>
      )}
      {typeof values["others"] === "number" && (
        <p class="soft">Other tenants hold {number(values["others"])}.</p>
      )}
      <Unseen unseen={values["unseen"]} />
      <div class="columns">
        <Holders table={tables["holders"]} resource={resource} />
        <DataTable
          name="waiters"
          caption="Who waits"
          table={tables["waiters"]}
          first={["unit", "amount", "resource", "since", "reason"]}
          columns={{
            amount: { title: "Requests", width: 8 },
            resource: { title: "of", width: 15 },
            since: { title: "For", width: 10 },
            reason: { title: "Why", show: (cell, row) => <span title={String(row("message") ?? "")}>{cell ? <Word word={String(cell)} /> : <span class="soft">{String(row("message") || "–")}</span>}</span> },
            message: { hidden: true },
            queue: { hidden: true },
          }}
          rows={12}
          actions={<a href={to("/waiting")}>What is missing</a>}
          empty={<>No work is pending. The <a href={to("/plan")}>Plan</a> page shows what would happen to new work.</>}
        />
      </div>
      {tables["nodes"] && !address.value.query.has("at") && (
        <Nodes table={tables["nodes"]} resource={resource} levels={(values["levels"] as string[] | undefined) ?? []} />
      )}
      <History by="team" scrub />
      {isObject(values["hour"]) && <LastHour hour={values["hour"]} />}
      <Rest state={state} shown={SHOWN} />
    </>
  );
}

const label = (resource: string): string => (/gpu/i.test(resource) || !resource ? "GPUs" : resource);

function Holders({ table, resource }: { table: TableState | undefined; resource: string }): JSX.Element {
  const by = address.value.query.get("by") ?? "queue";
  if (!table?.slots.length || by === "table") {
    return (
      <DataTable
        name="holders"
        caption="Who holds"
        table={table}
        actions={table?.slots.length ? <Grouping by={by} /> : null}
        first={["unit", "amount", "idle", "leaving", "since", "state"]}
        columns={{ amount: { title: label(resource), width: 8 }, idle: { width: 7 }, leaving: { width: 9 }, pods: { width: 7 }, nodes: { width: 7 } }}
        rows={12}
        empty="None is held. Devices are shown as soon as a pod that requests them runs."
      />
    );
  }
  return (
    <section class="panel" aria-label="Who holds">
      <header class="panel-head">
        <h2>Who holds <span class="count">{number(table.slots.length)}</span></h2>
        <Grouping by={by} />
      </header>
      <HolderTree table={table} by={by === "namespace" ? "namespace" : "queue"} resource={resource} />
    </section>
  );
}

function Grouping({ by }: { by: string }): JSX.Element {
  return (
    <div class="choice" role="group" aria-label="Holders by">
      {["queue", "namespace", "table"].map((each) => (
        <button key={each} type="button" aria-pressed={by === each} onClick={() => setQuery("by", [each === "queue" ? "" : each])}>
          {each === "table" ? "as a table" : `by ${each}`}
        </button>
      ))}
    </div>
  );
}

const HOW = ["map", "by domain", "as a table"] as const;

function Nodes({ table, resource, levels }: { table: TableState; resource: string; levels: string[] }): JSX.Element {
  const how = useSignal<(typeof HOW)[number]>("map");
  const offered = HOW.filter((each) => each !== "by domain" || levels.length > 0);
  const shown = offered.includes(how.value) ? how.value : "map";
  const choice = table.slots.length > 0 && (
    <div class="choice" role="group" aria-label="Nodes">
      {offered.map((each) => (
        <button key={each} type="button" aria-pressed={shown === each} onClick={() => (how.value = each)}>
          {each}
        </button>
      ))}
    </div>
  );
  if (shown === "as a table" || !table.slots.length) {
    return (
      <DataTable
        name="nodes"
        caption="Nodes"
        table={table}
        actions={choice}
        columns={{ total: { title: label(resource) } }}
        empty="No nodes are seen: they are shown to those who may list them."
      />
    );
  }
  return (
    <section class="panel" aria-label="Nodes">
      <header class="panel-head">
        <h2>Nodes <span class="count">{number(table.slots.length)}</span></h2>
        {choice}
      </header>
      {shown === "by domain" ? <Domains table={table} levels={levels} /> : <NodeMap table={table} />}
    </section>
  );
}

function LastHour({ hour }: { hour: JsonObject }): JSX.Element {
  const units = Number(hour["units"] ?? 0);
  const spared = hour["spared"];
  return (
    <section class="panel" aria-label="Last hour">
      <header class="panel-head">
        <h2>Last hour</h2>
        <a href={to("/preemptions")}>Preemptions</a>
      </header>
      <Figures
        figures={[
          { label: "decisions", value: number(Number(hour["preemptions"] ?? 0)) },
          { label: "preempted", value: plural(units, "unit"), attention: units > 0 },
          ...(typeof spared === "number" ? [{ label: "reprieved", value: number(spared) }] : []),
          { label: "work lost", value: gpuHours(hour["lostDeviceSeconds"]) },
        ]}
      />
    </section>
  );
}
