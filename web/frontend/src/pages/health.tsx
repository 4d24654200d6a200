// Health: who leads, what is open, how late it is, what went wrong; and what this page is made of.

import { useSignal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect } from "preact/hooks";
import { ifAll, to } from "../address.ts";
import { Age, Word } from "../cells.tsx";
import { number } from "../format.ts";
import { Rest } from "../generic.tsx";
import { Figures, type Figure, Title, gpuHours } from "../parts.tsx";
import { DataTable } from "../table.tsx";
import type { PageState } from "../topic_state.ts";
import { type Json, type JsonObject, isObject, numberOf, textOf } from "../wire.ts";

const SHOWN = ["leader", "open", "day", "polled", "unseen", "version", "loops", "faults", "kinds"];

export function Health({ state }: { state: PageState }): JSX.Element {
  const { values, tables } = state;
  return (
    <>
      <Title command={ifAll("kubectl get leases -A")}>Health</Title>
      <section class="panel" aria-label="Operator"><Figures figures={figures(values)} /></section>
      <DataTable
        name="open"
        caption="Preemptions that are not over"
        table={tables["open"]}
        columns={{ decided: { title: "For" }, preemptor: { title: "For whom" }, left: { title: "Still to do", width: 12 } }}
        first={["preemption", "preemptor", "state", "decided", "victims", "left"]}
        empty="None: every decision that was begun has come to its end."
      />
      <DataTable
        name="loops"
        caption="Who displaces whom in turn"
        table={tables["loops"]}
        columns={{ lost: { width: 13, show: gpuHours }, held: { title: "What is held back", width: 44 }, until: { title: "Held for" } }}
        empty="None: no loop is held."
      />
      <DataTable
        name="faults"
        caption="Failures within a day"
        table={tables["faults"]}
        first={["at", "where", "what"]}
        columns={{ at: { title: "Ago" } }}
        empty="Nothing that you may see."
      />
      <DataTable
        name="kinds"
        caption="What the page watches"
        table={tables["kinds"]}
        columns={{ health: { title: "How" } }}
        empty="Only users who see the whole cluster see it."
      />
      <Rest state={state} shown={SHOWN} />
      <p class="soft">
        Reprieve {textOf(values["version"])}. <Notices />
      </p>
    </>
  );
}

function figures(values: JsonObject): Figure[] {
  const leader = isObject(values["leader"]) ? values["leader"] : null;
  const day = isObject(values["day"]) ? values["day"] : {};
  const open = numberOf(values["open"]) ?? 0;
  const faults = numberOf(day["faults"]) ?? 0;
  const leads = leader?.["held"] === true;
  return [
    { label: "operator", value: leads ? <Word word="Leader" shown={textOf(leader?.["holder"]) || "leads"} /> : "no process leads", attention: !leads },
    { label: "lease renewed", value: aged(leader?.["renewed"]) },
    { label: "leads for", value: aged(leader?.["since"]) },
    { label: "open decisions", value: number(open) },
    { label: "decisions within a day", value: <a href={to("/preemptions")}>{number(numberOf(day["plans"]) ?? 0)}</a> },
    { label: "abandoned", value: number(numberOf(day["abandoned"]) ?? 0) },
    { label: "faults", value: number(faults), attention: faults > 0 },
    { label: "devices polled", value: aged(values["polled"]) },
  ];
}

const aged = (value: Json | undefined): ComponentChildren => (typeof value === "number" ? <Age at={value} /> : "–");

/** Where the licences lie is in the page's own file name, which only the manifest knows. */
function Notices(): JSX.Element {
  const href = useSignal("");
  useEffect(() => {
    href.value = document.querySelector<HTMLLinkElement>("link[rel=license]")?.href ?? "";
  }, []);
  return href.value ? <a href={href.value} target="_blank" rel="noopener">Licences of the packages in this page</a> : <></>;
}
