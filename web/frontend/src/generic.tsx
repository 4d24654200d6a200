// Whatever a page has that its view does not know: values by name, tables by the kinds of columns.

import type { ComponentChildren, JSX } from "preact";
import { Age } from "./cells.tsx";
import { capital, duration, number, words } from "./format.ts";
import { tableOfObjects } from "./local_table.ts";
import { DataTable } from "./table.tsx";
import type { PageState } from "./topic_state.ts";
import { type Json, isObject } from "./wire.ts";

/** Values that every page has, for the frame around it. */
const FRAME = new Set(["resource", "resources", "cluster", "namespaces", "command", "commands", "denied"]);

/** All values and tables of a page but those that its view has shown. */
export function Rest({ state, shown }: { state: PageState; shown: string[] }): JSX.Element {
  const values = Object.entries(state.values).filter(
    ([name, value]) => !shown.includes(name) && !FRAME.has(name) && !isNothing(value),
  );
  const tables = Object.entries(state.tables).filter(([name]) => !shown.includes(name));
  return (
    <>
      {values.length > 0 && (
        <section class="panel facts-panel">
          <Facts values={Object.fromEntries(values)} />
        </section>
      )}
      {tables.map(([name, table]) => (
        <DataTable key={name} name={name} caption={capital(words(name))} table={table} empty="There are none." />
      ))}
    </>
  );
}

const isNothing = (value: Json): boolean =>
  value === null || value === "" || (Array.isArray(value) && !value.length);

export function Facts({ values }: { values: Record<string, Json | ComponentChildren> }): JSX.Element {
  return (
    <dl class="facts">
      {Object.entries(values).map(([name, value]) => (
        <div key={name}>
          <dt>{capital(words(name))}</dt>
          <dd>{isJson(value) ? <Value name={name} value={value} /> : value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Elements of the page have a type; values of the wire are plain. */
const isJson = (value: Json | ComponentChildren): value is Json =>
  value === null || typeof value !== "object" || Array.isArray(value) || !("type" in value && "props" in value);

export function Value({ name, value }: { name: string; value: Json }): ComponentChildren {
  if (value === null || value === "" || (Array.isArray(value) && !value.length)) return <span class="none">–</span>;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") {
    if (value > 1.2e9 && value < 1e11 && !/seconds/i.test(name)) return <Age at={value} />;
    return /seconds$/i.test(name) ? duration(value) : number(value);
  }
  if (typeof value === "string") return value;
  if (isObject(value)) return <Facts values={value} />;
  if (value.every(isObject)) {
    return <DataTable name={name} caption={capital(words(name))} table={tableOfObjects(value.filter(isObject))} empty="" />;
  }
  return (
    <ul>
      {value.map((each, index) => (
        <li key={index}>
          <Value name={name} value={each} />
        </li>
      ))}
    </ul>
  );
}
