// What the engine states of rows that wait: the cause and the first change that helps, as `reprieve
// explain` prints them. Rows in sight are asked about, with the rights of who looks; until there is
// an answer a row shows what events and conditions state.

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { LINES, linesOf } from "./lines.ts";
import type { Row } from "./table.tsx";
import { type Cell, type JsonObject, isObject, textOf } from "./wire.ts";

interface Answer {
  why: string;
  step: string;
  command: string;
  at: string;
}

/** By unit, as a row names it. */
const answers = signal<ReadonlyMap<string, Answer>>(new Map());
/** How often each unit is in sight. */
const inSight = new Map<string, number>();
const MOST = 60;
const SOON_MS = 400;
const RENEWED_MS = 20_000;
let timer = 0;
let asking: AbortController | null = null;

export function Why({ cell, row }: { cell: Cell; row: Row }): JSX.Element {
  const answer = useAnswer(row);
  return <>{answer?.why || String(cell ?? "")}</>;
}

export function Helps({ cell, row }: { cell: Cell; row: Row }): JSX.Element {
  const answer = useAnswer(row);
  if (!answer?.step) return <>{String(cell ?? "")}</>;
  return <span title={`decided on a copy of the cluster at ${answer.at}`}>{answer.step} {answer.command && <code>{answer.command}</code>}</span>;
}

function useAnswer(row: Row): Answer | undefined {
  const unit = String(row("unit") ?? "");
  useEffect(() => {
    inSight.set(unit, (inSight.get(unit) ?? 0) + 1);
    if (!answers.value.has(unit)) soon();
    return () => {
      const left = (inSight.get(unit) ?? 1) - 1;
      if (left > 0) inSight.set(unit, left);
      else inSight.delete(unit);
      if (!inSight.size) stop();
    };
  }, [unit]);
  return answers.value.get(unit);
}

function soon(): void {
  if (!asking) at(SOON_MS);
}

function at(pause: number): void {
  clearTimeout(timer);
  timer = window.setTimeout(() => void ask(), pause);
}

/** Nobody looks any more: the engine's work for it ends, too. */
function stop(): void {
  clearTimeout(timer);
  asking?.abort();
  answers.value = new Map();
}

async function ask(): Promise<void> {
  if (asking || !inSight.size) return;
  if (document.hidden) return at(RENEWED_MS);
  const mine = (asking = new AbortController());
  const known = answers.value;
  // Those without an answer come first, should they be too many for one question.
  const units = [...inSight.keys()].sort((a, b) => Number(known.has(a)) - Number(known.has(b))).slice(0, MOST);
  let pause = RENEWED_MS;
  try {
    const query = new URLSearchParams(units.map((unit) => ["unit", unit]));
    const found = await fetch(`/api/explain?${query.toString()}`, { headers: { Accept: LINES }, signal: mine.signal });
    if (found.ok) {
      for await (const line of linesOf(found)) {
        if (typeof line["again"] === "number") pause = line["again"] * 1000;
        if (line["complete"] === true && isObject(line["answer"])) learn(line["answer"]);
      }
    }
  } catch {
    // The rows keep what events and conditions state.
  }
  asking = null;
  if (inSight.size) at([...inSight.keys()].every((unit) => answers.value.has(unit)) ? Math.max(pause, RENEWED_MS) : pause);
}

function learn(answer: JsonObject): void {
  const subject = isObject(answer["subject"]) ? answer["subject"] : {};
  const unit = [textOf(subject["kind"]).toLowerCase(), textOf(subject["namespace"]), textOf(subject["name"])].join("/");
  const next = new Map([...answers.value].filter(([each]) => inSight.has(each)));
  const waiting = isObject(answer["waiting"]) ? answer["waiting"] : null;
  const [first] = Array.isArray(answer["nextSteps"]) ? answer["nextSteps"].filter(isObject) : [];
  if (waiting && first) {
    next.set(unit, { why: textOf(waiting["why"]), step: textOf(first["text"]), command: textOf(first["command"]), at: textOf(answer["asOf"]) });
  } else {
    next.delete(unit); // it does not wait any more
  }
  answers.value = next;
}
