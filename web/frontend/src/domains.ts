// Nodes added up by the domains of one level of their topology, those with the most room first.

import type { TableState } from "./topic_state.ts";

export interface Domain {
  name: string;
  slots: number[];
  free: number;
  total: number;
  /** What is free on the node with the most. */
  largest: number;
}

const PARTS = ["working", "idle", "leaving", "claimed", "free"];

export function domainsOf(table: TableState, level: number): Domain[] {
  const place = (name: string): number => table.columns.findIndex(([each]) => each === name);
  const [values, free] = [place("domains"), place("free")];
  const parts = PARTS.map((part) => place(part));
  const found = new Map<string, Domain>();
  table.slots.forEach((slot, row) => {
    const path = ((table.data[values]?.[row] as string[] | null) ?? []).slice(0, level + 1);
    const name = path.join(" / ");
    const domain = found.get(name) ?? { name, slots: [], free: 0, total: 0, largest: 0 };
    const left = Number(table.data[free]?.[row] ?? 0);
    domain.slots.push(slot);
    domain.free += left;
    domain.largest = Math.max(domain.largest, left);
    domain.total += parts.reduce((sum, part) => sum + Math.max(0, Number(table.data[part]?.[row] ?? 0)), 0);
    found.set(name, domain);
  });
  const order = new Intl.Collator("en", { numeric: true }).compare;
  return [...found.values()].sort((a, b) => Number(!a.name) - Number(!b.name) || b.free - a.free || order(a.name, b.name));
}
