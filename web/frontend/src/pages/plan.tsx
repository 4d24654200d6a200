// Plan: whether manifests would start, who would be preempted, where, and what would help.

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { UnitLink, Word } from "../cells.tsx";
import { Facts } from "../generic.tsx";
import { tableOfObjects } from "../local_table.ts";
import { Title, gpuHours, plural } from "../parts.tsx";
import { fragileWords, idleWords, startWords } from "../plan_words.ts";
import { DataTable } from "../table.tsx";
import { FileDrop } from "../file_drop.tsx";
import { type Json, type JsonObject, errorOf, isObject, textOf } from "../wire.ts";

// Kept while the reader is on other pages.
const manifest = signal("");
const namespace = signal("");
const answer = signal<JsonObject | null>(null);
const error = signal("");
const busy = signal(false);

async function ask(): Promise<void> {
  if (!manifest.value.trim()) {
    error.value = "Paste a manifest first, or drop a file.";
    return;
  }
  busy.value = true;
  error.value = "";
  answer.value = null;
  try {
    const body = JSON.stringify({ manifest: manifest.value, namespace: namespace.value.trim() });
    const said = await fetch("/api/plan", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    if (said.ok) answer.value = (await said.json()) as JsonObject;
    else error.value = await errorOf(said);
  } catch {
    error.value = "The server does not answer.";
  }
  busy.value = false;
}

export function Plan(): JSX.Element {
  const name = namespace.value.trim();
  return (
    <>
      <Title command={`reprieve plan -f manifest.yaml${name ? ` -n ${name}` : ""}`}>Plan</Title>
      <p class="soft">What would become of work before it is submitted. Nothing is written, and nothing is reserved.</p>
      <form class="plan" onSubmit={(event) => {
        event.preventDefault();
        void ask();
      }}>
        <FileDrop accept=".yaml,.yml,.json" what="a manifest" take={(text) => (manifest.value = text)}>
          <label for="manifest">Manifests, in YAML or JSON</label>
          <textarea id="manifest" rows={14} spellcheck={false} value={manifest.value} aria-describedby="plan-said"
            placeholder={"apiVersion: batch/v1\nkind: Job\n…"} onInput={(event) => (manifest.value = event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void ask();
            }} />
        </FileDrop>
        <div class="line">
          <label>Namespace, where a manifest names none{" "}
            <input value={namespace.value} placeholder="default" spellcheck={false} onInput={(event) => (namespace.value = event.currentTarget.value)} />
          </label>
          <button type="submit" disabled={busy.value}>{busy.value ? "Deciding…" : "What would happen?"}</button>
        </div>
        <p id="plan-said" role="alert" class={error.value ? "word attention" : ""}>{error.value}</p>
      </form>
      {answer.value && <Answer answer={answer.value} />}
    </>
  );
}

const objects = (value: Json | undefined): JsonObject[] => (Array.isArray(value) ? value.filter(isObject) : []);
const unit = (each: JsonObject): string =>
  `${textOf(each["kind"]).toLowerCase()}/${textOf(each["namespace"])}/${textOf(each["name"])}`;

const VERDICTS: Record<string, string> = {
  Starts: "It would start, without preemption",
  StartsWithVictims: "It would start, and others would be preempted",
  Waits: "It would wait",
  NeverFits: "It would never fit",
};

/** Of what never fits, how much of it an empty cluster would take. */
function alone(each: JsonObject): string {
  const placed = each["podsOnEmptyCluster"];
  return typeof placed === "number" ? `Even on the empty cluster ${placed} of ${plural(Number(each["pods"]), "pod")} would run` : "";
}

/** What the change is in the manifest, where that is known, else in the object that was decided about. */
function changeOf(fix: JsonObject): JsonObject {
  const written = objects(fix["written"]);
  if (!written.length) return { field: fix["field"] ?? "", before: fix["before"] ?? "", after: fix["after"] ?? "" };
  const [first] = written;
  return { field: written.map((each) => textOf(each["path"])).join(", "), before: first!["before"] ?? "", after: first!["after"] ?? "" };
}

/** What to do where no single change was found, or where it fits nowhere. */
function steps(each: JsonObject): string[] {
  return Array.isArray(each["steps"]) ? each["steps"].map(textOf) : [];
}

function idle(each: JsonObject): string {
  const why = idleWords(each["idle"]);
  return why && `No idle work is preempted: ${why}`;
}

function Answer({ answer }: { answer: JsonObject }): JSX.Element {
  const verdict = textOf(answer["verdict"]);
  const submitted = objects(answer["submitted"]);
  const victims = objects(answer["victims"]);
  const fixes = objects(answer["fixes"]);
  const warnings = Array.isArray(answer["warnings"]) ? answer["warnings"].map(textOf) : [];
  const facts: Record<string, Json> = {};
  for (const name of ["reason", "message", "borrowed"]) {
    const value = answer[name];
    if (value !== undefined && value !== "" && !(Array.isArray(value) && !value.length)) facts[name] = value;
  }
  if (Array.isArray(facts["borrowed"])) {
    facts["borrowed"] = objects(facts["borrowed"]).map((each) => `${textOf(each["clusterQueue"])}: ${Object.entries(isObject(each["amounts"]) ? each["amounts"] : {}).map(([name, amount]) => `${String(amount)} ${name}`).join(", ")}`);
  }
  const fragile = fragileWords(answer["fragile"], victims.length > 0);
  if (fragile) facts["fragile"] = fragile;
  const planes = Array.isArray(answer["controllers"]) ? answer["controllers"].map(textOf) : [];
  if (planes.length) facts["decided by"] = planes.join(", ");
  if (answer["complete"] === false) facts["not complete"] = "the copy did not come to rest within half an hour of its own time";
  const seen = isObject(answer["snapshot"]) ? answer["snapshot"] : {};
  facts["on a copy of"] = `${plural(Number(seen["nodes"] ?? 0), "node")} and ${plural(Number(seen["pods"] ?? 0), "pod")}, of ${textOf(seen["at"])}`;
  const unseen = objects(seen["unseen"]).map((each) => textOf(each["kind"]));
  if (unseen.length) facts["not seen"] = unseen.join(", ");
  return (
    <>
      <section class="panel facts-panel verdict" aria-label="Answer">
        <h2><Word word={verdict || "Unknown"} shown={VERDICTS[verdict] ?? (verdict || "It could not be decided")} /></h2>
        {warnings.map((warning) => <p key={warning}>{warning}</p>)}
        <Facts values={facts} />
      </section>
      <DataTable
        name="submitted"
        caption="Submitted"
        local
        table={tableOfObjects(submitted.map((each) => ({
          unit: unit(each), verdict: each["verdict"] ?? null, placed: `${String(each["placed"])} of ${plural(Number(each["podsSubmitted"]), "pod")}`,
          alone: each["podsWithoutVictims"] ?? null, queue: each["clusterQueue"] ?? "", start: startWords(each["estimate"]),
          message: [textOf(each["message"]), alone(each), idle(each)].filter(Boolean).join(". "),
        })), { unit: "unit", verdict: "word", queue: "text" })}
        columns={{ placed: { title: "Would run", width: 14 }, alone: { title: "Without preemption", width: 24 }, start: { title: "Starts", width: 40 }, message: { width: 44 }, unit: { show: (cell) => <UnitLink id={String(cell)} /> } }}
        empty="Nothing in it is work."
      />
      <DataTable
        name="victims"
        caption="Would be preempted"
        local
        table={tableOfObjects(victims.map((each) => ({
          unit: unit(each), gpus: each["devices"] ?? null, lost: each["lostDeviceSeconds"] ?? null,
          why: each["why"] ?? "", plane: each["plane"] ?? "", rule: each["rule"] ?? "",
        })), { unit: "unit", plane: "word" })}
        columns={{ gpus: { width: 8 }, lost: { width: 13, show: gpuHours }, why: { width: 44 } }}
        empty="No work."
      />
      <DataTable
        name="fixes"
        caption="What would help"
        local
        table={tableOfObjects(fixes.map((each) => ({
          text: each["text"] ?? "", ...changeOf(each), victims: each["victims"] ?? null,
        })))}
        first={["text"]}
        columns={{ text: { title: "Change", width: 48 }, victims: { title: "Preempted then", width: 15 } }}
        empty={verdict === "Starts" ? "Nothing is needed." : ["No single change was found.", ...submitted.flatMap(steps)].join(" ")}
      />
      <DataTable name="placement" caption="Where its pods would run" local table={tableOfObjects(objects(answer["placement"]))} empty="Nowhere yet." />
    </>
  );
}
