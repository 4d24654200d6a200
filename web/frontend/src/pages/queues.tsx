// Queues: the tree of cohorts and queues, what each has, borrows and lends, and who could be reclaimed.

import type { JSX } from "preact";
import { address, ifAll, inNamespace, queuePath, to } from "../address.ts";
import { number } from "../format.ts";
import { Rest } from "../generic.tsx";
import { History } from "../history.tsx";
import { Title, Unseen } from "../parts.tsx";
import { DataTable, type Row, rowOf } from "../table.tsx";
import type { PageState, TableState } from "../topic_state.ts";
import { type Cell, textOf } from "../wire.ts";

export function Queues({ state }: { state: PageState }): JSX.Element {
  const { values, tables } = state;
  const name = address.value.subject["name"];
  const resource = textOf(values["resource"]);
  const ofResource = (row: Row): boolean => !resource || row("resource") === resource;
  const scale = largest(tables["queues"], ofResource);
  return (
    <>
      <Title command={ifAll(name ? `kubectl get clusterqueue ${name} -o yaml` : "kubectl get clusterqueues,cohorts") || `kubectl get localqueues${inNamespace()}`}>
        {name ? `Queue ${name}` : "Queues"} <span class="soft resource">{resource}</span>
      </Title>
      {name && <p><a href={to("/queues")}>All queues</a></p>}
      <Unseen unseen={values["unseen"]} />
      <DataTable
        name="queues"
        caption="Quota"
        table={tables["queues"]}
        only={ofResource}
        first={["queue", "used", "nominal", "borrowed", "lent"]}
        columns={{
          queue: { width: 30, show: (cell, row) => <Name cell={cell} row={row} /> },
          used: { width: 26, show: (cell, row) => <Usage used={cell} row={row} scale={scale} /> },
          kind: { hidden: true },
          parent: { hidden: true },
          depth: { hidden: true },
          resource: { hidden: true },
          flavor: { width: 14 },
          borrowingLimit: { width: 14 },
          lendingLimit: { width: 13 },
        }}
        empty="There are no queues: work is scheduled without quota. A ClusterQueue with quota, and a LocalQueue that leads to it, make one."
      />
      <ul class="legend" aria-label="What the bars show">
        <li><svg width="14" height="10" aria-hidden="true"><rect class="part working" width="14" height="10" /></svg> used of the nominal quota</li>
        <li><svg width="14" height="10" aria-hidden="true"><rect class="over" width="14" height="10" /></svg> borrowed beyond it</li>
        <li><svg width="14" height="10" aria-hidden="true"><line class="line" x1="7" x2="7" y1="0" y2="10" /></svg> nominal quota; all bars have one scale</li>
      </ul>
      {!name && <History by="queue" />}
      <DataTable
        name="shares"
        caption="Fair shares"
        table={tables["shares"]}
        first={["queue", "share", "weight", "arithmetic", "pending", "admitted"]}
        columns={{
          queue: { width: 30, show: (cell, row) => <Name cell={cell} row={row} /> },
          arithmetic: { title: "How it comes about", width: 52 },
          kind: { hidden: true },
          parent: { hidden: true },
          depth: { hidden: true },
        }}
        empty="There are no shares."
      />
      <DataTable
        name="reclaimable"
        caption="What could be reclaimed next, in this order"
        table={tables["reclaimable"]}
        columns={{ borrowed: { title: "Queue borrows", width: 15 }, since: { title: "Admitted" } }}
        empty="No queue borrows: nothing could be reclaimed."
      />
      <Rest state={state} shown={["unseen", "queues", "shares", "reclaimable"]} />
    </>
  );
}

function Name({ cell, row }: { cell: Cell; row: Row }): JSX.Element {
  const name = String(cell ?? "");
  const depth = Math.min(6, Number(row("depth") ?? 0));
  return (
    <span style={{ paddingLeft: `${depth * 1.2}em` }}>
      {row("kind") === "ClusterQueue" ? <a href={queuePath(name)}>{name}</a> : <strong>{name}</strong>}
    </span>
  );
}

/** The largest quota or use of a queue, the scale of all bars. */
function largest(table: TableState | undefined, wanted: (row: Row) => boolean): number {
  const rows = (table?.slots ?? []).map((slot) => rowOf(table!, slot)).filter((row) => wanted(row) && row("kind") !== "Cohort");
  return Math.max(1, ...rows.flatMap((row) => [row("nominal"), row("used")]).filter((each): each is number => typeof each === "number"));
}

/** What is used of the nominal quota: filled within it, dotted beyond it. */
function Usage({ used, row, scale }: { used: Cell; row: Row; scale: number }): JSX.Element {
  const nominal = row("nominal");
  const said = typeof used === "number" ? number(used) : "–";
  // A cohort's own quota is not what those below it use.
  if (row("kind") === "Cohort" || typeof nominal !== "number" || typeof used !== "number") return <>{said}</>;
  const within = (Math.min(nominal, used) / scale) * 100;
  return (
    <span class="usage">
      <svg width="100%" height="10" aria-hidden="true">
        <rect class="part working" x="0" width={`${within}%`} height="10" />
        <rect class="over" x={`${within}%`} width={`${(Math.max(0, used - nominal) / scale) * 100}%`} height="10" />
        <path class="line" d="M0 0v10" />
        <line class="line" x1={`${(nominal / scale) * 100}%`} x2={`${(nominal / scale) * 100}%`} y1="0" y2="10" />
      </svg>
      <span class="usage-number">{said}</span>
    </span>
  );
}
