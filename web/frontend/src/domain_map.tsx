// The nodes by the domains of their topology: a section each with what is free there, the most first.
//
// One level is shown at a time: the narrowest by default, or the narrowest of which there are few
// enough to be looked at. Nodes that are in no domain stand at the end.

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { address, setQuery } from "./address.ts";
import { domainsOf } from "./domains.ts";
import { number } from "./format.ts";
import { MapLegend, NodeMap } from "./node_map.tsx";
import type { TableState } from "./topic_state.ts";

const MOST = 64;

export function Domains({ table, levels }: { table: TableState; levels: string[] }): JSX.Element {
  const byLevel = useMemo(() => levels.map((_, level) => domainsOf(table, level)), [table, levels]);
  const asked = levels.indexOf(address.value.query.get("level") ?? "");
  const few = byLevel.reduce((found, domains, level) => (domains.length <= MOST ? level : found), 0);
  const level = asked < 0 ? few : asked;
  return (
    <div class="domains">
      {levels.length > 1 && (
        <div class="choice" role="group" aria-label="Level">
          {levels.map((each, index) => (
            <button key={each} type="button" aria-pressed={index === level} onClick={() => setQuery("level", [each])}>
              {each.split("/").pop()}
            </button>
          ))}
        </div>
      )}
      <div class="domain-grid">
        {byLevel[level]?.map((domain) => (
          <section key={domain.name} class="domain" aria-label={domain.name || "no domain"}>
            <h3>
              {domain.name || <span class="soft">in no domain</span>}{" "}
              <span class="count">{number(domain.free)} of {number(domain.total)} free</span>
            </h3>
            <NodeMap table={table} slots={domain.slots} legend={false} />
            <p class="soft">
              {domain.slots.length === 1 ? "1 node" : `${number(domain.slots.length)} nodes`}, at most {number(domain.largest)} free on one
            </p>
          </section>
        ))}
      </div>
      <p class="node-said"><MapLegend /></p>
    </div>
  );
}
