// How single values are shown: numbers, ages that count, words with a shape, links to work.

import type { ComponentChildren, JSX } from "preact";
import { preemptionPath, queuePath, workloadPath } from "./address.ts";
import { second, shownAt } from "./clock.ts";
import { duration, instant, iso, number, shortInstant, unitOf } from "./format.ts";
import type { Cell, Kind } from "./wire.ts";
import { type Shape, look } from "./words.ts";

const PATHS: Record<Shape, JSX.Element> = {
  full: <circle cx="6" cy="6" r="4.5" class="fill" />,
  half: (
    <>
      <circle cx="6" cy="6" r="4.25" class="line" />
      <path d="M6 1.75a4.25 4.25 0 0 0 0 8.5z" class="fill" />
    </>
  ),
  ring: <circle cx="6" cy="6" r="4.25" class="line" />,
  slash: (
    <>
      <circle cx="6" cy="6" r="4.25" class="line" />
      <path d="M3 9 9 3" class="line" />
    </>
  ),
  cross: <path d="m2.5 2.5 7 7m0-7-7 7" class="line thick" />,
  alert: <path d="M6 1 11.3 10.5H.7z" class="fill" />,
  square: <rect x="2.5" y="2.5" width="7" height="7" class="line" />,
  check: <path d="m2 6.5 3 3 5-7" class="line thick" />,
};

export function Sign({ shape }: { shape: Shape }): JSX.Element {
  return (
    <svg class="sign" viewBox="0 0 12 12" aria-hidden="true">
      {PATHS[shape]}
    </svg>
  );
}

export function Word({ word, shown }: { word: string; shown?: string }): JSX.Element {
  const { shape, tone } = look(word);
  return (
    <span class={`word ${tone}`}>
      <Sign shape={shape} />
      {shown ?? word}
    </span>
  );
}

/** How long ago, counted by the second; the instant itself as its title. */
export function Age({ at }: { at: number }): JSX.Element {
  const passed = (shownAt.value ?? second.value) - at;
  const said = passed > -1 ? duration(Math.max(0, Math.floor(passed))) : `in ${duration(Math.ceil(-passed))}`;
  return (
    <time dateTime={iso(at)} title={instant(at)}>
      {said}
    </time>
  );
}

export function Moment({ at }: { at: number }): JSX.Element {
  return (
    <time dateTime={iso(at)} title={instant(at)}>
      {shortInstant(at, second.value)}
    </time>
  );
}

/** Work by its id `kind/namespace/name`, a link where it may be named. */
export function UnitLink({ id }: { id: string }): JSX.Element {
  const unit = unitOf(id);
  if (!unit) return <span class="foreign">{id}</span>;
  return (
    <a href={workloadPath(id)} title={id}>
      <span class="soft">{unit.namespace}/</span>
      {unit.name}
    </a>
  );
}

function Listed({ cells }: { cells: string[] }): JSX.Element {
  return (
    <>
      {cells.map((cell, index) => (
        <span key={index}>
          {index > 0 && ", "}
          {unitOf(cell) ? <UnitLink id={cell} /> : cell}
        </span>
      ))}
    </>
  );
}

const LINKS: Record<string, (name: string) => string> = {
  preemption: preemptionPath,
  record: preemptionPath,
  queue: queuePath,
  clusterQueue: queuePath,
  cluster_queue: queuePath,
};

/** Words that say which rather than how it stands have no shape. */
const PLAIN = new Set(["plane", "kind"]);

/** A cell of a column; the name of the column tells what its text is the name of. */
export function CellView({ cell, kind, name }: { cell: Cell; kind: Kind; name: string }): ComponentChildren {
  if (cell === null || cell === "") return <span class="none">–</span>;
  if (Array.isArray(cell)) return cell.length ? <Listed cells={cell} /> : <span class="none">–</span>;
  if (typeof cell === "boolean") return cell ? <Word word="ok" shown="yes" /> : <span class="none">no</span>;
  if (typeof cell === "number") {
    if (kind === "instant") return <Age at={cell} />;
    return kind === "duration" ? duration(cell) : number(cell);
  }
  if (kind === "word" && !PLAIN.has(name)) return <Word word={cell} />;
  if (kind === "unit") return <UnitLink id={cell} />;
  const link = LINKS[name];
  if (link) return <a href={link(cell)}>{cell}</a>;
  return <span title={cell}>{cell}</span>;
}
