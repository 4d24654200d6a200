// One workload: a bar of its life over all attempts, and the story of each time it was preempted, a click
// from its decision: for whom, by which rule, what it lost, why it, and what would have spared it.

import { useSignal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { address, preemptionPath, queuePath, to } from "../address.ts";
import { Age, Moment, UnitLink, Word } from "../cells.tsx";
import { duration, number } from "../format.ts";
import { Facts, Rest } from "../generic.tsx";
import { Life } from "../life.tsx";
import { LINES, linesOf } from "../lines.ts";
import { Objects } from "../objects.tsx";
import { Title, gpuHours, plural } from "../parts.tsx";
import { DataTable, type Row, rowOf } from "../table.tsx";
import type { PageState, TableState } from "../topic_state.ts";
import { type Json, type JsonObject, errorOf, isObject, numberOf, textOf } from "../wire.ts";

const SHOWN = [
  "unit", "kind", "namespace", "name", "state", "since", "created", "queue", "clusterQueue", "priority",
  "attempts", "gpus", "idle", "totals", "waits", "command", "life", "displacements", "displaced", "pods",
];

export function Workload({ state }: { state: PageState }): JSX.Element {
  const { values, tables } = state;
  const { kind = "", namespace = "", name = "" } = address.value.subject;
  const word = textOf(values["state"]);
  const about = facts(values);
  const attempts = numberOf(values["attempts"]);
  return (
    <>
      <Title command={textOf(values["command"]) || `reprieve explain ${kind}/${name} -n ${namespace}`}>
        <span class="soft">{kind}</span> {namespace}/{name} {word && <span class="title-word"><Word word={word} /></span>}{" "}
        {attempts !== null && attempts > 0 && <span class="soft">{plural(attempts, "attempt")}</span>}
      </Title>
      {tables["life"] && <Life table={tables["life"]} />}
      {isObject(values["waits"]) && <Waits waits={values["waits"]} />}
      <Displacements table={tables["displacements"]} totals={values["totals"]} />
      {Object.keys(about).length > 0 && (
        <section class="panel facts-panel" aria-label="What it is"><Facts values={about} /></section>
      )}
      {(tables["displaced"]?.slots.length ?? 0) > 0 && (
        <DataTable
          name="displaced"
          caption="Who was preempted for it"
          table={tables["displaced"]}
          first={["at", "preemption", "units", "gpus", "lost", "rule", "whose", "state"]}
          columns={{
            at: { title: "Decided", width: 17, show: (cell) => (typeof cell === "number" ? <Moment at={cell} /> : "–") },
            preemption: { width: 24 }, gpus: { width: 8 }, lost: { width: 13, show: gpuHours }, rule: { width: 28 },
          }}
          empty=""
        />
      )}
      <DataTable name="pods" caption="Pods" table={tables["pods"]} columns={{ names: { width: 40 } }} empty="It has no pods now." />
      <Objects kind={kind} namespace={namespace} name={name} pods={podsOf(tables["pods"])} />
      <Rest state={state} shown={SHOWN} />
    </>
  );
}

/** The names of its pods, as far as they are named. */
function podsOf(table: TableState | undefined): string[] {
  const found = (table?.slots ?? []).flatMap((slot) => rowOf(table!, slot)("names") ?? []);
  return [...new Set(found.map(String))].sort();
}

function Waits({ waits }: { waits: JsonObject }): JSX.Element {
  const since = numberOf(waits["since"]);
  const position = numberOf(waits["position"]);
  const queue = textOf(waits["queue"]);
  const values: Record<string, Json | ComponentChildren> = {
    why: <Word word={textOf(waits["reason"]) || "Unknown"} />,
    missing: textOf(waits["message"]),
    "what helps": textOf(waits["step"]),
    since: since === null ? null : <Age at={since} />,
    queue: queue ? <><a href={queuePath(queue)}>{queue}</a>{position !== null && `, position ${position}`}</> : null,
    "requests": textOf(waits["shape"]),
    plane: textOf(waits["plane"]),
  };
  return (
    <section class="panel facts-panel" aria-label="Why it waits">
      <h2>Why it waits</h2>
      <Facts values={present(values)} />
      <Helps />
    </section>
  );
}

/** Changes that the engine tries on a copy of the cluster: asked for, since that takes seconds. */
function Helps(): JSX.Element {
  const { kind = "", namespace = "", name = "" } = address.value.subject;
  const answer = useSignal<JsonObject | null>(null);
  const said = useSignal("");
  const leaving = useRef<AbortController | null>(null);
  // Who leaves the page, or looks at another one, ends the engine's work for it.
  useEffect(() => () => leaving.current?.abort(), [kind, namespace, name]);
  const ask = async (): Promise<void> => {
    const mine = (leaving.current = new AbortController());
    said.value = "The engine decides on a copy of the cluster\u2026";
    answer.value = null;
    try {
      const path = [kind, namespace, name].map(encodeURIComponent).join("/");
      const found = await fetch(`/api/explain/${path}`, { headers: { Accept: LINES }, signal: mine.signal });
      if (!found.ok) {
        said.value = await errorOf(found);
        return;
      }
      let end = "The server ended the answer early.";
      for await (const line of linesOf(found)) {
        if (line["error"]) end = textOf(line["error"]);
        if (!isObject(line["answer"])) continue;
        answer.value = line["answer"];
        said.value = "This is known so far; the engine tries changes on a copy of the cluster\u2026";
        if (line["complete"] === true) end = "";
      }
      said.value = end;
    } catch {
      if (!mine.signal.aborted) said.value = "The server does not answer.";
    }
  };
  const list = (field: string): JsonObject[] => {
    const found = answer.value?.[field];
    return Array.isArray(found) ? found.filter(isObject) : [];
  };
  const sure = answer.value?.["certainty"];
  return (
    <>
      <p class="line">
        <button type="button" disabled={said.value.endsWith("\u2026")} onClick={() => void ask()}>What would help?</button>{" "}
        <a href={to("/plan")}>Try a manifest</a>
      </p>
      <p role="status">{said.value}</p>
      {answer.value && (
        <>
          <p>{textOf(answer.value["verdict"])}</p>
          <Facts values={Object.fromEntries(list("evidence").map((each) => [textOf(each["name"]), textOf(each["text"])]))} />
          <ol>
            {stepsOf(answer.value).map((each, index) => (
              <li key={index}>{textOf(each["text"])} {each["command"] && <code>{textOf(each["command"])}</code>}</li>
            ))}
          </ol>
          <p class="soft">{!said.value && Array.isArray(sure) ? sure.map(textOf).join(" ") : ""}</p>
        </>
      )}
    </>
  );
}

const stepsOf = (answer: JsonObject): JsonObject[] => {
  const found = answer["nextSteps"];
  return Array.isArray(found) ? found.filter(isObject) : [];
};

const present = (values: Record<string, Json | ComponentChildren>): Record<string, Json | ComponentChildren> =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== null && value !== "" && value !== undefined));

function Displacements({ table, totals }: { table: TableState | undefined; totals: Json | undefined }): JSX.Element {
  const rows = (table?.slots ?? []).map((slot) => rowOf(table!, slot));
  const sums = isObject(totals) ? totals : {};
  const times = numberOf(sums["displaced"]) ?? rows.length;
  return (
    <section class="panel" aria-label="Displacements">
      <header class="panel-head">
        <h2>Preempted <span class="count">{plural(times, "time")}</span></h2>
        {times > 0 && <span class="soft">{gpuHours(sums["lost"])} lost in all{numberOf(sums["day"]) !== null && `, ${number(Number(sums["day"]))} within a day`}</span>}
      </header>
      {rows.length ? (
        <ol class="stories">
          {rows.map((row, index) => <Story key={index} row={row} />)}
        </ol>
      ) : (
        <p class="empty">It never had to be preempted, as far as records reach.</p>
      )}
    </section>
  );
}

function Story({ row }: { row: Row }): JSX.Element {
  const cell = (name: string): string => String(row(name) ?? "");
  const at = row("at");
  const [lost, gpus, ran] = [row("lost"), row("gpus"), row("ran")];
  const times = Number(row("times") ?? 0);
  return (
    <li>
      <p class="story-head">
        {typeof at === "number" ? <Moment at={at} /> : "–"} <strong>preempted</strong>
        {cell("by") && <> for <UnitLink id={cell("by")} /></>}
        {cell("rule") && <span class="soft"> ({cell("plane") && `${cell("plane")}: `}{cell("rule")})</span>}{" "}
        {cell("preemption") && <a href={preemptionPath(cell("preemption"))}>the decision</a>}
      </p>
      <Facts values={present({
        lost: typeof lost === "number" ? `${gpuHours(lost)}${typeof gpus === "number" && gpus > 0 ? `: ${duration(Math.round(lost / gpus))} of ${plural(gpus, "GPU")}` : ""}` : null,
        ran: typeof ran === "number" ? duration(Math.round(ran)) : null,
        "how often": times > 1 ? `the ${times}${["th", "st", "nd", "rd"][times % 100 > 10 && times % 100 < 14 ? 0 : times % 10] ?? "th"} time within 24 h` : null,
        "why this one": cell("why"),
        "what would have spared it": cell("spared"),
        outcome: cell("outcome") ? <Word word={cell("outcome")} /> : null,
      })} />
    </li>
  );
}

function facts(values: JsonObject): Record<string, Json | ComponentChildren> {
  const [local, queue] = [textOf(values["queue"]), textOf(values["clusterQueue"])];
  const created = numberOf(values["created"]);
  const idle = isObject(values["idle"]) ? values["idle"] : null;
  const utilization = numberOf(idle?.["utilization"]);
  return present({
    GPUs: values["gpus"] || null,
    queue: queue ? <><a href={queuePath(queue)}>{queue}</a>{local && local !== queue && `, by its LocalQueue ${local}`}</> : local,
    priority: values["priority"] ?? null,
    created: created === null ? null : <Moment at={created} />,
    idle: idle && Number(idle["gpus"] ?? 0) > 0
      ? <><Word word="Idle" shown={plural(Number(idle["gpus"]), "GPU")} />{numberOf(idle["since"]) !== null && <> for <Age at={Number(idle["since"])} /></>}{utilization !== null && `, at ${number(utilization)} %`}</>
      : null,
  });
}
