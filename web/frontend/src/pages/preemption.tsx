// One preemption: what was needed and freed, who was preempted, who was spared and why, and the proof.

import type { ComponentChildren, JSX } from "preact";
import { preemptionPath } from "../address.ts";
import { CellView, Moment, UnitLink, Word } from "../cells.tsx";
import { duration, number, shortRecord } from "../format.ts";
import { Facts, Rest } from "../generic.tsx";
import { Title, gpuHours, plural } from "../parts.tsx";
import { DataTable } from "../table.tsx";
import type { PageState } from "../topic_state.ts";
import { type Json, type JsonObject, isObject, numberOf, textOf } from "../wire.ts";

const SHOWN = [
  "address", "record", "plan", "plane", "attempt", "dryRun", "state", "reason", "decided", "started",
  "finished", "preemptor", "need", "reprieved", "proof", "again", "totals", "command", "victims",
  "spared", "sums", "amounts", "placement", "demand",
];
const LOST = { title: "Lost", width: 13, show: gpuHours };

export function Preemption({ state }: { state: PageState }): JSX.Element {
  const { values, tables } = state;
  const word = textOf(values["state"]);
  const [decided, finished] = [numberOf(values["decided"]), numberOf(values["finished"])];
  return (
    <>
      <Title command={textOf(values["command"])}>
        Preemption <span title={textOf(values["address"])}>{shortRecord(textOf(values["address"]))}</span>{" "}
        {word && <span class="title-word"><Word word={word} /></span>}{" "}
        {decided !== null && finished !== null && <span class="soft">in {duration(finished - decided)}</span>}
        {values["dryRun"] === true && <span class="soft"> dry run</span>}
      </Title>
      <section class="panel facts-panel" aria-label="The decision">
        <Facts values={facts(values, decided)} />
      </section>
      <DataTable
        name="victims"
        caption="Preempted"
        table={tables["victims"]}
        first={["unit", "gpus", "rule", "lost", "state", "why", "since"]}
        columns={{ gpus: { width: 8 }, lost: LOST, rule: { width: 44 }, why: { title: "Why this one", width: 40 }, objects: { width: 9 }, place: { width: 8 } }}
        empty="No unit that you may see."
      />
      <DataTable
        name="spared"
        caption="Spared"
        table={tables["spared"]}
        first={["unit", "gpus", "fate", "why", "lost", "priority", "queue"]}
        columns={{ gpus: { width: 8 }, lost: { ...LOST, title: "Would lose" }, why: { width: 44 }, objects: { width: 9 }, place: { width: 8 } }}
        empty={isObject(values["again"]) && values["again"]["state"] === "Pending"
          ? "The decision is being made again; who was spared is shown as soon as it is."
          : "There was no other candidate that you may see."}
      />
      {(tables["sums"]?.slots.length ?? 0) > 1 && (
        <DataTable name="sums" caption="All of them, added up" table={tables["sums"]} columns={{ lost: LOST, rule: { width: 30 } }} empty="" />
      )}
      {(tables["amounts"]?.slots.length ?? 0) > 0 && (
        <DataTable name="amounts" caption="Amounts of the proof" table={tables["amounts"]} columns={{ inFlight: { title: "On its way" } }} empty="" />
      )}
      {(tables["placement"]?.slots.length ?? 0) > 0 && (
        <DataTable name="placement" caption="Where it fits afterwards" table={tables["placement"]} empty="" />
      )}
      <Rest state={state} shown={SHOWN} />
    </>
  );
}

function facts(values: JsonObject, decided: number | null): Record<string, Json | ComponentChildren> {
  const preemptor = textOf(values["preemptor"]);
  const totals = isObject(values["totals"]) ? values["totals"] : {};
  const result: Record<string, Json | ComponentChildren> = {
    for: preemptor ? <UnitLink id={preemptor} /> : "none in particular",
  };
  if (isObject(values["need"])) result["arithmetic"] = <Arithmetic need={values["need"]} reprieved={values["reprieved"]} />;
  result["preempted"] = `${plural(Number(totals["units"] ?? 0), "unit")}, ${gpuHours(totals["lost"])} of work lost`;
  if (isObject(values["proof"])) result["proof"] = <Proof proof={values["proof"]} />;
  if (isObject(values["demand"])) {
    const demand = values["demand"];
    result["stages"] = <Stages stages={demand["stages"]} />;
    result["both halves"] = `${textOf(demand["proof"])}${Number(demand["depth"] ?? 1) > 1 ? `; depth ${textOf(demand["depth"])} in a chain` : ""}`;
    result["not by"] = <Rejected rejected={demand["rejected"]} />;
  }
  if (isObject(values["again"])) result["decided again"] = <Again again={values["again"]} />;
  if (decided !== null) result["decided"] = <Moment at={decided} />;
  for (const name of ["plane", "attempt", "reason", "plan"]) {
    const value = values[name];
    if (value !== null && value !== undefined && value !== "" && !(name === "attempt" && value === 1)) result[name] = value;
  }
  return result;
}

/** `needed 64 − free 24 = 40 GPUs; freed 40; reprieved 3 units`. */
function Arithmetic({ need, reprieved }: { need: JsonObject; reprieved: Json | undefined }): JSX.Element {
  const amount = (name: string): number => Number(need[name] ?? 0);
  const put = isObject(reprieved) ? Object.entries(reprieved).filter(([, count]) => Number(count) > 0) : [];
  const rough = need["exact"] === false;
  return (
    <span>
      needed {number(amount("needed"))} − free {rough && "at least "}{number(amount("free"))}
      {amount("coming") > 0 && ` − on its way ${number(amount("coming"))}`} ={" "}
      {rough && "at most "}<strong>{number(amount("lacking"))}</strong> {textOf(need["resource"])}; freed <strong>{number(amount("freed"))}</strong>
      {put.map(([name, count]) => `; reprieved ${number(Number(count))} (${name})`)}
      {!put.length && amount("countedAgain") > 0 && `; reprieved ${number(amount("countedAgain"))} (counted by deciding again)`}
    </span>
  );
}

/** By how much victims exceed the least possible at most. */
function gapText(gap: Json | undefined): string {
  if (typeof gap !== "number") return "not known";
  return gap === 0 ? "0" : `at most ${number(gap)} %`;
}

function Proof({ proof }: { proof: JsonObject }): JSX.Element {
  const said: ComponentChildren[] = [textOf(proof["text"]) || textOf(proof["level"])];
  if (proof["irreducible"] === true) said.push("; ", <Word word="irreducible" />);
  const profile = textOf(proof["profile"]);
  if (profile) said.push(`; ${profile} choice${profile === "best" ? `, gap ${gapText(proof["gap"])}` : ""}`);
  if (proof["upheld"] === true) said.push("; ", <Word word="ok" shown="checked: it holds" />);
  if (proof["upheld"] === false) said.push("; ", <Word word="failed" shown="checked: it does not hold" />);
  return <span>{said}</span>;
}

/** The planes that see the demand through; those of other records lead to them. */
function Stages({ stages }: { stages: Json | undefined }): JSX.Element {
  const found = Array.isArray(stages) ? stages.filter(isObject) : [];
  return (
    <span>
      {found.map((stage, place) => {
        const [plane, name] = [textOf(stage["plane"]), textOf(stage["preemption"])];
        return <span key={place}>{place > 0 && ", then "}{name ? <a href={preemptionPath(name)}>{plane}</a> : plane}</span>;
      })}
    </span>
  );
}

function Rejected({ rejected }: { rejected: Json | undefined }): JSX.Element {
  const found = Array.isArray(rejected) ? rejected.filter(isObject) : [];
  return <span>{found.map((each) => `${textOf(each["plane"])}: ${textOf(each["text"])}`).join("; ")}</span>;
}

function Again({ again }: { again: JsonObject }): JSX.Element {
  return (
    <span>
      <CellView cell={textOf(again["state"])} kind="word" name="state" />
      {textOf(again["text"]) && <pre>{textOf(again["text"])}</pre>}
    </span>
  );
}
