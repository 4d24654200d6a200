// Preemptions: every decision by which a workload was preempted, the newest first.

import type { JSX } from "preact";
import { address, ifAll, inNamespace, preemptionPath, setQuery } from "../address.ts";
import { Moment } from "../cells.tsx";
import { shortRecord } from "../format.ts";
import { Rest } from "../generic.tsx";
import { Title, gpuHours } from "../parts.tsx";
import { DataTable } from "../table.tsx";
import type { PageState } from "../topic_state.ts";
import { type Json, textOf } from "../wire.ts";

const SINCE = ["1h", "24h", "168h"];

export function Preemptions({ state }: { state: PageState }): JSX.Element {
  const { values, tables } = state;
  const { query } = address.value;
  return (
    <>
      <Title command={ifAll("kubectl get preemptions -A") || `kubectl get disruptions${inNamespace()}`}>Preemptions</Title>
      <form class="filters" aria-label="Which preemptions" onSubmit={(event) => event.preventDefault()}>
        <Choice name="plane" words={texts(values["planes"])} all="all planes" />
        <Choice name="state" words={texts(values["states"])} all="in any state" />
        <Choice name="since" words={SINCE} all="of all time" shown={(word) => `of the last ${word === "168h" ? "week" : word}`} />
        <label>
          <input type="checkbox" checked={query.get("dry") === "1"} onChange={(event) => setQuery("dry", [event.currentTarget.checked ? "1" : ""])} />{" "}
          dry runs, too
        </label>
      </form>
      <DataTable
        name="preemptions"
        caption="Decisions"
        table={tables["preemptions"]}
        first={["decided", "preemption", "preemptor", "units", "victims", "gpus", "lost", "state", "duration", "rule", "whose", "plane", "stages"]}
        columns={{
          decided: { width: 17, show: (cell) => (typeof cell === "number" ? <Moment at={cell} /> : "–") },
          preemption: { width: 16, show: (cell) => <a href={preemptionPath(String(cell))} title={String(cell)}>{shortRecord(String(cell))}</a> },
          preemptor: { title: "For whom" },
          units: { title: "Preempted", width: 11 },
          victims: { title: "Objects", width: 9 },
          gpus: { width: 8 },
          lost: { width: 13, show: (cell) => gpuHours(cell) },
          whose: { title: "Who was preempted" },
          stages: { width: 22 },
          dryRun: { width: 9 },
        }}
        sort="-decided"
        rows={24}
        empty="Nothing had to be preempted. A decision is shown here as soon as it is recorded, before anything is evicted."
      />
      <Rest state={state} shown={["planes", "states", "found", "shown", "preemptions"]} />
    </>
  );
}

const texts = (value: Json | undefined): string[] => (Array.isArray(value) ? value.map(textOf) : []);

interface ChoiceProps {
  name: string;
  words: string[];
  all: string;
  shown?: (word: string) => string;
}

function Choice({ name, words, all, shown = (word) => word }: ChoiceProps): JSX.Element {
  const chosen = address.value.query.get(name) ?? "";
  return (
    <label>
      <span class="hidden">{name}</span>
      <select value={chosen} onChange={(event) => setQuery(name, [event.currentTarget.value])}>
        <option value="" selected={!chosen}>{all}</option>
        {words.map((word) => (
          <option key={word} value={word} selected={word === chosen}>{shown(word)}</option>
        ))}
      </select>
    </label>
  );
}
