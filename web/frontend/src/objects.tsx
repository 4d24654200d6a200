// YAML, events and logs of an object, read when asked for, with the rights of who looks.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { errorOf } from "./wire.ts";

type What = "yaml" | "events" | "logs";
const TITLES: Record<What, string> = { yaml: "YAML", events: "Events", logs: "Logs" };

/** `pods`: the names of its pods. */
export function Objects({ kind, namespace, name, pods }: { kind: string; namespace: string; name: string; pods: string[] }): JSX.Element {
  const of = useSignal("");
  const shown = useSignal<{ title: string; text: string } | null>(null);
  const said = useSignal("");
  const [asked, called] = of.value ? ["pod", of.value] : [kind, name];
  const ask = async (what: What): Promise<void> => {
    said.value = "Reading\u2026";
    shown.value = null;
    try {
      const path = [what, asked, namespace, called].map(encodeURIComponent).join("/");
      const answer = await fetch(`/api/object/${path}`, { cache: "no-store" });
      said.value = answer.ok ? "" : await errorOf(answer);
      if (answer.ok) shown.value = { title: `${TITLES[what]} of ${asked} ${called}`, text: ((await answer.json()) as { text: string }).text };
    } catch {
      said.value = "The server does not answer.";
    }
  };
  const whats: What[] = asked === "pod" ? ["yaml", "events", "logs"] : ["yaml", "events"];
  return (
    <section class="panel" aria-label="Objects">
      <header class="panel-head">
        <h2>YAML, events, logs <span class="count">read with your rights</span></h2>
        <label>
          <span class="hidden">Of which object</span>
          <select value={of.value} onChange={(event) => (of.value = event.currentTarget.value)}>
            <option value="">{kind} {name}</option>
            {pods.map((pod) => <option key={pod} value={pod}>pod {pod}</option>)}
          </select>
        </label>
        <div class="choice" role="group" aria-label="What is read">
          {whats.map((what) => <button key={what} type="button" onClick={() => void ask(what)}>{TITLES[what]}</button>)}
        </div>
      </header>
      <p role="status" class={said.value ? "empty" : ""}>{said.value}</p>
      {shown.value && (
        <div class="object">
          <h3>{shown.value.title}</h3>
          <pre tabIndex={0} aria-label={shown.value.title}>{shown.value.text}</pre>
        </div>
      )}
    </section>
  );
}
