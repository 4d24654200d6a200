// Waiting: every unit that waits, by reason and by shape, what is missing and what helps.

import type { JSX } from "preact";
import { inNamespace, setQuery, to } from "../address.ts";
import { Word } from "../cells.tsx";
import { Rest } from "../generic.tsx";
import { Helps, Why } from "../helping.tsx";
import { tableOfObjects } from "../local_table.ts";
import { Title, Unseen } from "../parts.tsx";
import { DataTable, rowOf } from "../table.tsx";
import type { PageState, TableState } from "../topic_state.ts";
import type { JsonObject } from "../wire.ts";

export function Waiting({ state }: { state: PageState }): JSX.Element {
  const { values, tables } = state;
  const waiting = tables["waiting"];
  return (
    <>
      <Title command={`reprieve get pending${inNamespace()}`}>Waiting</Title>
      <Unseen unseen={values["unseen"]} />
      <div class="columns">
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
          table={shapes(waiting)}
          columns={{ shape: { show: (cell) => <Chooser text={String(cell)}>{String(cell)}</Chooser> } }}
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

const made = new WeakMap<TableState, { version: number; shapes: TableState }>();

/** How many units wait in each shape; kept until the table changes. */
function shapes(table: TableState | undefined): TableState | undefined {
  if (!table) return undefined;
  const known = made.get(table);
  if (known?.version === table.version) return known.shapes;
  const counts = new Map<string, { units: number; amount: number }>();
  for (const slot of table.slots) {
    const row = rowOf(table, slot);
    const shape = String(row("shape") ?? "");
    const sum = counts.get(shape) ?? { units: 0, amount: 0 };
    sum.units += 1;
    sum.amount += Number(row("amount") ?? 0);
    counts.set(shape, sum);
  }
  const rows = [...counts].map(([shape, sums]): JsonObject => ({ shape: shape || "unknown", ...sums }));
  const found = tableOfObjects(rows);
  made.set(table, { version: table.version, shapes: found });
  return found;
}
