// Who holds, as a tree by queue or by namespace: sums of each branch, its units within.
//
// A tree grid of one tab stop: up and down move, right and left open and close a branch, Enter opens
// the unit. In a long tree only what has sums below it is open: rows are folded.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useId, useRef } from "preact/hooks";
import { address, go, queuePath, setQuery, workloadPath } from "./address.ts";
import { Age, UnitLink, Word } from "./cells.tsx";
import { number, unitOf } from "./format.ts";
import { type Row, rowOf } from "./table.tsx";
import type { TableState } from "./topic_state.ts";
import type { Cell } from "./wire.ts";

export type Grouping = "queue" | "namespace";

interface Branch {
  key: string;
  name: string;
  level: number;
  sums: number[];
  units: number;
  branches: Map<string, Branch>;
  rows: Row[];
}

type Line = { key: string; level: number; branch?: Branch; row?: Row };

const SUMS = ["amount", "idle", "leaving"];
const TITLES: Record<string, string> = { amount: "Holds", idle: "Idle", leaving: "Leaving" };
const MOST_OPEN = 60;
const MOST_LINES = 400;

export function HolderTree({ table, by, resource }: { table: TableState; by: Grouping; resource: string }): JSX.Element {
  const id = useId();
  const body = useRef<HTMLTableSectionElement>(null);
  const toggled = useSignal<ReadonlySet<string>>(new Set());
  const current = useSignal("");
  const search = (address.value.query.get("search") ?? "").toLowerCase();
  const root = grown(table, by, search);
  const open = (branch: Branch): boolean =>
    toggled.value.has(branch.key) !== (root.units <= MOST_OPEN || branch.branches.size > 0 || Boolean(search));
  const all = lines(root, open);
  const shown = all.slice(0, MOST_LINES);
  const position = shown.findIndex((line) => line.key === current.value);

  const toggle = (branch: Branch): void => {
    const next = new Set(toggled.value);
    if (!next.delete(branch.key)) next.add(branch.key);
    toggled.value = next;
  };
  const key = (event: KeyboardEvent): void => {
    if (event.target !== event.currentTarget || event.ctrlKey || event.metaKey || event.altKey) return;
    const line = shown[position];
    const steps: Record<string, number> = {
      ArrowDown: position + 1, j: position + 1, ArrowUp: position - 1, k: position - 1,
      Home: 0, End: shown.length - 1,
    };
    const step = steps[event.key];
    if (step !== undefined) {
      const to = Math.max(0, Math.min(shown.length - 1, step));
      current.value = shown[to]?.key ?? "";
      body.current?.children[to]?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "ArrowRight" && line?.branch && !open(line.branch)) toggle(line.branch);
    else if (event.key === "ArrowLeft" && line?.branch && open(line.branch)) toggle(line.branch);
    else if (event.key === "Enter" && line?.branch) toggle(line.branch);
    else if (event.key === "Enter" && line?.row) {
      const unit = String(line.row("unit") ?? "");
      if (unitOf(unit)) go(workloadPath(unit));
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    <div class="scroller tree">
      <table
        role="treegrid"
        tabIndex={0}
        aria-label="Who holds, as a tree"
        aria-activedescendant={position >= 0 ? `${id}-${position}` : undefined}
        onKeyDown={key}
        onFocus={() => {
          if (position < 0) current.value = shown[0]?.key ?? "";
        }}
      >
        <thead>
          <tr>
            <th scope="col">{by === "queue" ? "Queue" : "Namespace"}</th>
            {SUMS.map((name) => (
              <th key={name} scope="col" class="number" title={resource}>
                {TITLES[name]}
              </th>
            ))}
            <th scope="col" class="instant">Since</th>
            <th scope="col" class="word">State</th>
          </tr>
        </thead>
        <tbody ref={body}>
          {shown.map((line, index) => (
            <tr
              key={line.key}
              id={`${id}-${index}`}
              aria-level={line.level + 1}
              aria-expanded={line.branch ? open(line.branch) : undefined}
              aria-selected={line.key === current.value}
              class={line.branch ? "branch" : ""}
              onClick={() => {
                current.value = line.key;
                if (line.branch) toggle(line.branch);
              }}
            >
              {line.branch ? <BranchCells branch={line.branch} by={by} open={open(line.branch)} /> : <UnitCells row={line.row!} level={line.level} />}
            </tr>
          ))}
        </tbody>
      </table>
      {all.length > shown.length && (
        <p class="empty">
          {number(all.length - shown.length)} more.{" "}
          <button type="button" class="link" onClick={() => setQuery("by", ["table"])}>Show all as a table</button>
        </p>
      )}
    </div>
  );
}

function BranchCells({ branch, by, open }: { branch: Branch; by: Grouping; open: boolean }): JSX.Element {
  const isQueue = by === "queue" && !branch.branches.size && branch.name !== NONE.queue;
  return (
    <>
      <th scope="row" class={`level-${Math.min(3, branch.level)}`}>
        <span class="twist" aria-hidden="true">{open ? "▾" : "▸"}</span>
        {isQueue ? <a href={queuePath(branch.name)} onClick={(event) => event.stopPropagation()}>{branch.name}</a> : branch.name}{" "}
        <span class="count">{number(branch.units)}</span>
      </th>
      {branch.sums.map((sum, index) => (
        <td key={index} class="number">{sum ? number(sum) : <span class="none">–</span>}</td>
      ))}
      <td class="instant" />
      <td class="word" />
    </>
  );
}

function UnitCells({ row, level }: { row: Row; level: number }): JSX.Element {
  const since = row("since");
  const state = row("state");
  return (
    <>
      <td class={`level-${Math.min(3, level)}`}>
        <UnitLink id={String(row("unit") ?? "")} />
      </td>
      {SUMS.map((name) => (
        <td key={name} class="number">{row(name) ? number(Number(row(name))) : <span class="none">–</span>}</td>
      ))}
      <td class="instant">{typeof since === "number" ? <Age at={since} /> : <span class="none">–</span>}</td>
      <td class="word">{state ? <Word word={String(state)} /> : ""}</td>
    </>
  );
}

const NONE = { queue: "without a queue", namespace: "other tenants" };

const trees = new WeakMap<TableState, { of: string; root: Branch }>();

/** The tree of this state of the table, made once. */
function grown(table: TableState, by: Grouping, search: string): Branch {
  const of = `${table.version} ${by} ${search}`;
  const known = trees.get(table);
  if (known?.of === of) return known.root;
  const root = grow(table, by, search);
  trees.set(table, { of, root });
  return root;
}

function grow(table: TableState, by: Grouping, search: string): Branch {
  const root = branchOf("", "", -1);
  for (const slot of table.slots) {
    const row = rowOf(table, slot);
    const id = String(row("unit") ?? "");
    if (search && !`${id} ${row("queue")} ${row("cohort")} ${row("state")}`.toLowerCase().includes(search)) continue;
    const path = by === "queue"
      ? [row("cohort"), row("queue") || NONE.queue]
      : [unitOf(id)?.namespace ?? NONE.namespace];
    let branch = root;
    count(branch, row);
    for (const name of path) {
      if (!name) continue;
      branch = below(branch, String(name));
      count(branch, row);
    }
    branch.rows.push(row);
  }
  return root;
}

function branchOf(key: string, name: string, level: number): Branch {
  return { key, name, level, sums: SUMS.map(() => 0), units: 0, branches: new Map(), rows: [] };
}

function below(parent: Branch, name: string): Branch {
  const found = parent.branches.get(name);
  if (found) return found;
  const made = branchOf(`${parent.key}/${name}`, name, parent.level + 1);
  parent.branches.set(name, made);
  return made;
}

function count(branch: Branch, row: Row): void {
  branch.units += 1;
  SUMS.forEach((name, index) => (branch.sums[index]! += amount(row(name))));
}

const amount = (cell: Cell): number => (typeof cell === "number" ? cell : 0);

function lines(parent: Branch, open: (branch: Branch) => boolean): Line[] {
  const branches = [...parent.branches.values()].sort((a, b) => b.sums[0]! - a.sums[0]! || (a.name < b.name ? -1 : 1));
  const found: Line[] = [];
  for (const branch of branches) {
    found.push({ key: branch.key, level: branch.level, branch });
    if (open(branch)) found.push(...lines(branch, open));
  }
  const rows = parent.rows
    .map((row) => ({ key: `${parent.key}//${row("unit")}`, level: parent.level + 1, row, size: amount(row("amount")) }))
    .sort((a, b) => b.size - a.size);
  return [...found, ...rows];
}
