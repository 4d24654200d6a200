// Waiting: every unit that waits, by reason, shape and team, what is missing and what helps.

import type { JSX } from "preact";
import { inNamespace, setQuery, to } from "../address.ts";
import { Word } from "../cells.tsx";
import { Rest } from "../generic.tsx";
import { unitOf } from "../format.ts";
import { Helps, Why } from "../helping.tsx";
import { tableOfObjects } from "../local_table.ts";
import { Title, Unseen } from "../parts.tsx";
import { DataTable, type Row, rowOf } from "../table.tsx";
import type { PageState, TableState } from "../topic_state.ts";
import type { JsonObject } from "../wire.ts";

export function Waiting({ state }: { state: PageState }): JSX.Element {
  const { values, tables } = state;
  const waiting = tables["waiting"];
  const { shapes, teams } = sumsOf(waiting);
  return (
    <>
      <Title command={`reprieve get pending${inNamespace()}`}>Waiting</Title>
      <Unseen unseen={values["unseen"]} />
      <div class="columns three">
        <DataTable
          name="reasons"
          sort="-units"
          caption="By reason"
          table={tables["reasons"]}
          columns={{ reason: { width: 24, show: (cell) => cell ? <Chooser text={String(cell)}><Word word={String(cell)} /></Chooser> : <span class="soft">not stated</span> } }}
          rows={6}
          empty="No work is pending."
        />
        <DataTable
          name="shapes"
          local
          caption="By shape"
          table={shapes}
          columns={{ shape: { show: (cell) => <Chooser text={String(cell)}>{String(cell)}</Chooser> } }}
          sort="-units"
          rows={6}
          empty="No work is pending."
        />
        <DataTable
          name="teams"
          local
          caption="By team"
          table={teams}
          columns={{ team: { show: (cell) => <Chooser text={String(cell)}>{String(cell)}</Chooser> } }}
          sort="-units"
          rows={6}
          empty="No work is pending."
        />
      </div>
      <DataTable
        name="waiting"
        caption="Who waits"
        table={waiting}
        first={["unit", "amount", "resource", "shape", "since", "reason", "message", "step", "queue", "position"]}
        columns={{
          amount: { title: "Requests", width: 8 },
          resource: { title: "of", width: 15 },
          since: { title: "For" },
          message: { title: "What is missing", width: 44, show: (cell, row) => <Why cell={cell} row={row} /> },
          step: { title: "What helps", width: 44, show: (cell, row) => <Helps cell={cell} row={row} /> },
          position: { width: 10 },
          pods: { hidden: true },
          plane: { hidden: true },
        }}
        rows={22}
        empty={<>No work is pending. The <a href={to("/plan")}>Plan</a> page shows what would happen to new work.</>}
      />
      <Rest state={state} shown={["unseen", "everything", "reasons", "waiting"]} />
    </>
  );
}

function Chooser({ text, children }: { text: string; children: preact.ComponentChildren }): JSX.Element {
  return (
    <button type="button" class="link plain" title={`show only ${text}`} onClick={() => setQuery("search", [text])}>
      {children}
    </button>
  );
}

type Sums = { shapes: TableState; teams: TableState };

const made = new WeakMap<TableState, { version: number; sums: Sums }>();

/** How many units wait in each shape and of each team; kept until the table changes. */
function sumsOf(table: TableState | undefined): Partial<Sums> {
  if (!table) return {};
  const known = made.get(table);
  if (known?.version === table.version) return known.sums;
  const sums: Sums = {
    shapes: counted(table, "shape", (row) => String(row("shape") ?? "") || "unknown"),
    teams: counted(table, "team", (row) => unitOf(String(row("unit") ?? ""))?.namespace || "unknown"),
  };
  made.set(table, { version: table.version, sums });
  return sums;
}

function counted(table: TableState, name: string, of: (row: Row) => string): TableState {
  const counts = new Map<string, { units: number; amount: number }>();
  for (const slot of table.slots) {
    const row = rowOf(table, slot);
    const sum = counts.get(of(row)) ?? { units: 0, amount: 0 };
    sum.units += 1;
    sum.amount += Number(row("amount") ?? 0);
    counts.set(of(row), sum);
  }
  return tableOfObjects([...counts].map(([each, sum]): JsonObject => ({ [name]: each, ...sum })));
}
