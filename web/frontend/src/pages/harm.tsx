// Harm: harm budgets and their use, and who paid for whose urgency this week and this month.

import type { JSX } from "preact";
import { ifAll } from "../address.ts";
import { Moment } from "../cells.tsx";
import { duration, number } from "../format.ts";
import { Rest } from "../generic.tsx";
import { Figures, Title, gpuHours, plural } from "../parts.tsx";
import { DataTable } from "../table.tsx";
import type { PageState } from "../topic_state.ts";
import { type Cell, isObject, numberOf } from "../wire.ts";

const LEDGER = {
  payer: { title: "Paid" },
  beneficiary: { title: "For" },
  plane: { width: 10 },
  reason: { title: "Why", width: 24 },
  displacements: { title: "Displaced", show: times },
  lost: { title: "Work lost", show: gpus },
  saved: { title: "Saved by notice", show: gpus },
  waitSaved: { title: "Victims waited", show: hours },
};

export function Harm({ state }: { state: PageState }): JSX.Element {
  const { values, tables } = state;
  const counts = isObject(values["counts"]) ? values["counts"] : {};
  const budgets = numberOf(counts["budgets"]) ?? 0;
  const exhausted = numberOf(counts["exhausted"]) ?? 0;
  const refused = Array.isArray(values["refused"]) ? values["refused"].map(String) : [];
  return (
    <>
      <Title command={ifAll("kubectl get harmbudgets")}>Harm</Title>
      <section class="panel" aria-label="In short">
        <Figures
          figures={[
            ...(budgets ? [{ label: "defined", value: plural(budgets, "budget") }] : []),
            { label: "used up", value: plural(exhausted, "account"), attention: exhausted > 0 },
            ...refused.map((each) => ({ label: "not accepted", value: each, attention: true })),
          ]}
        />
      </section>
      <DataTable
        name="budgets"
        caption="Budgets and their use"
        table={tables["budgets"]}
        first={["of", "budget", "displacements", "lost", "window", "free", "holds"]}
        columns={{
          of: { title: "Account" },
          budget: { title: "Budget" },
          window: { title: "Window", width: 22 },
          displacements: { title: "Displaced", show: (cell, row) => of(times(cell), row("mostDisplacements"), times) },
          lost: { title: "Work lost", show: (cell, row) => of(gpus(cell), row("mostLost"), gpus) },
          mostDisplacements: { hidden: true },
          mostLost: { hidden: true },
          free: { title: "Free again", show: (cell) => (typeof cell === "number" ? <Moment at={cell} /> : "now") },
          holds: { title: "When used up", show: (cell) => String(cell ?? "") },
        }}
        empty="No budget that concerns you was used within its window."
      />
      {[["week", "Who paid for whom this week"], ["month", "Who paid for whom this month"]].map(([name, caption]) => (
        <DataTable
          key={name}
          name={name!}
          caption={caption!}
          table={tables[name!]}
          first={["payer", "beneficiary", "displacements", "lost", "waitSaved", "saved", "plane", "reason"]}
          columns={LEDGER}
          empty="Nothing was displaced."
        />
      ))}
      <Rest state={state} shown={["counts", "refused", "budgets", "week", "month"]} />
    </>
  );
}

/** What is used of what is allowed. */
function of(used: string, most: Cell, shown: (cell: Cell) => string): string {
  return typeof most === "number" ? `${used} of ${shown(most)}` : used;
}

function times(cell: Cell): string {
  return typeof cell === "number" ? number(cell) : "–";
}

/** GPU-hours, in the unit in which they can be read. */
function gpus(cell: Cell): string {
  return typeof cell === "number" ? gpuHours(cell * 3600) : "–";
}

function hours(cell: Cell): string {
  return typeof cell === "number" ? duration(cell * 3600) : "–";
}
