// My work: what a tenant asks first: my queues, what of mine runs, waits, and was preempted.

import type { JSX } from "preact";
import { inNamespace, preemptionPath, queuePath, seen, to } from "../address.ts";
import { Age, Moment, Word } from "../cells.tsx";
import { number, shortRecord } from "../format.ts";
import { Rest } from "../generic.tsx";
import { Helps, Why } from "../helping.tsx";
import { Figures, Title, Unseen, gpuHours, plural } from "../parts.tsx";
import { DataTable, type Row } from "../table.tsx";
import type { PageState } from "../topic_state.ts";
import { type Cell, isObject, numberOf } from "../wire.ts";

export function Mine({ state }: { state: PageState }): JSX.Element {
  const { values, tables } = state;
  const counts = isObject(values["counts"]) ? values["counts"] : {};
  const named = Array.isArray(values["namespaces"]) ? values["namespaces"].map(String) : [];
  const namespaces = named.length ? named : (seen.value ?? []);
  const figure = (name: string): number => numberOf(counts[name]) ?? 0;
  return (
    <>
      <Title command={`reprieve get pending${inNamespace()}`}>
        My work <span class="soft resource">{namespaces.length ? namespaces.join(", ") : "of all namespaces: name yours above"}</span>
      </Title>
      <section class="panel" aria-label="In short">
        <Figures
          figures={[
            { label: "runs", value: plural(figure("running"), "unit") },
            { label: "waits", value: plural(figure("waiting"), "unit"), attention: figure("waiting") > 0 },
            ...(figure("notified") > 0 ? [{ label: "may save before it is evicted", value: plural(figure("notified"), "unit"), attention: true }] : []),
            { label: "preempted within a day", value: plural(figure("preempted"), "time"), attention: figure("preempted") > 0 },
          ]}
        />
      </section>
      {(tables["notified"]?.slots.length ?? 0) > 0 && (
        <DataTable
          name="notified"
          caption="What may save before it is evicted"
          table={tables["notified"]}
          first={["unit", "due", "answered", "state", "by", "rule", "message"]}
          columns={{
            due: { title: "Evicted at the latest", show: (cell) => (typeof cell === "number" ? <Age at={cell} /> : "–") },
            answered: { title: "Pods that have saved", show: (cell, row) => <>{String(cell ?? 0)} of {String(row("requested") ?? 0)}</> },
            requested: { hidden: true },
            by: { title: "For" },
            message: { title: "It states", width: 30 },
          }}
          empty="None of your work has notice."
        />
      )}
      <DataTable
        name="waiting"
        caption="What waits"
        table={tables["waiting"]}
        first={["unit", "position", "amount", "resource", "since", "reason", "message", "step"]}
        columns={{
          position: { title: "Place", width: 8 },
          amount: { title: "Requests", width: 8 },
          resource: { title: "of", width: 15 },
          since: { title: "For" },
          reason: { title: "Why" },
          message: { title: "What is missing", width: 40, show: (cell, row) => <Why cell={cell} row={row} /> },
          step: { title: "What helps", width: 40, show: (cell, row) => <Helps cell={cell} row={row} /> },
        }}
        empty={<>Nothing of yours waits. The <a href={to("/plan")}>Plan</a> page shows what would happen to new work.</>}
      />
      <DataTable
        name="preempted"
        caption="What was preempted within a day"
        table={tables["preempted"]}
        first={["unit", "at", "by", "rule", "lost", "state"]}
        columns={{
          at: { title: "When", show: (cell) => (typeof cell === "number" ? <Moment at={cell} /> : "–") },
          by: { title: "For" },
          lost: { title: "Work lost", show: gpuHours },
          state: { title: "Now", width: 40, show: (cell, row) => <Became state={cell} row={row} /> },
          back: { hidden: true },
          tried: { hidden: true },
          position: { hidden: true },
          preemption: { title: "Decision", show: (cell) => <a href={preemptionPath(String(cell ?? ""))} title={String(cell ?? "")}>{shortRecord(String(cell ?? ""))}</a> },
        }}
        empty="Nothing of yours was preempted within a day."
      />
      <DataTable
        name="running"
        caption="What runs"
        table={tables["running"]}
        first={["unit", "amount", "resource", "idle", "since", "state"]}
        columns={{ amount: { title: "Holds", width: 8 }, resource: { title: "of", width: 15 }, idle: { width: 7 } }}
        empty="Nothing of yours runs."
      />
      <DataTable
        name="queues"
        caption="My queues"
        table={tables["queues"]}
        first={["queue", "used", "reserved", "nominal", "resource", "flavor", "pending", "admitted"]}
        columns={{
          queue: { title: "LocalQueue", show: (cell, row) => <>{String(cell ?? "")}{row("namespace") ? <span class="soft"> in {String(row("namespace"))}</span> : ""}</> },
          namespace: { hidden: true },
          nominal: { title: "Quota" },
          reserved: { title: "Reserved" },
          clusterQueue: { show: (cell) => (cell ? <a href={queuePath(String(cell))}>{String(cell)}</a> : "–") },
          message: { title: "Accepts nothing, as" },
        }}
        empty={<>There is no LocalQueue in your namespaces: work of yours is scheduled without quota.</>}
      />
      <Unseen unseen={values["unseen"]} />
      <Rest state={state} shown={["counts", "unseen", "notified", "waiting", "preempted", "running", "queues"]} />
    </>
  );
}

/** What became of work that was preempted, and when it comes back. */
function Became({ state, row }: { state: Cell; row: Row }): JSX.Element {
  const [back, tried, position] = [row("back"), row("tried"), row("position")];
  const word = String(state ?? "");
  return (
    <>
      <Word word={word} />
      {word === "Waiting" && (
        <span class="soft">
          {typeof position === "number" && <>, place {number(position)} in its queue</>}
          {typeof tried === "number" && <>, tried again <Age at={tried} /></>}
          {typeof position !== "number" && typeof tried !== "number" && ", comes back as soon as it fits"}
        </span>
      )}
      {word !== "Waiting" && typeof back === "number" && <span class="soft">, again since <Moment at={back} /></span>}
      {word === "Gone" && typeof back !== "number" && <span class="soft">: nothing made it again</span>}
    </>
  );
}
