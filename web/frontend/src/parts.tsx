// Small parts that several pages have: notices, commands to copy, figures, lost work.

import { useSignal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { number } from "./format.ts";
import type { Cell, Json } from "./wire.ts";

export function Notice({ title, children }: { title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <section class="notice">
      <h1>{title}</h1>
      {children}
    </section>
  );
}

export function Command({ command }: { command: string }): JSX.Element {
  const said = useSignal("");
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(command);
      said.value = "copied";
    } catch {
      said.value = "select it and copy it";
    }
    setTimeout(() => (said.value = ""), 2000);
  };
  return (
    <span class="command">
      <code>{command}</code>
      <button type="button" class="quiet" aria-label={`copy: ${command}`} onClick={() => void copy()}>Copy</button>
      <span role="status" class="soft">{said.value}</span>
    </span>
  );
}

/** Page title with what it is about, and the command that says the same. */
export function Title({ children, command }: { children: ComponentChildren; command?: string }): JSX.Element {
  return (
    <div class="title">
      <h1>{children}</h1>
      {command && <Command command={command} />}
    </div>
  );
}

export interface Figure {
  label: string;
  value: ComponentChildren;
  attention?: boolean;
}

export function Figures({ figures }: { figures: Figure[] }): JSX.Element {
  return (
    <dl class="figures">
      {figures.map(({ label, value, attention }) => (
        <div key={label} class={attention ? "attention" : ""}>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Device-seconds as the hours in which people count devices. */
export function gpuHours(seconds: Cell | Json | undefined): string {
  if (typeof seconds !== "number") return "–";
  if (seconds < 60) return `${number(Math.round(seconds))} GPU-s`;
  if (seconds < 3600) return `${number(Math.round(seconds / 60))} GPU-min`;
  const hours = seconds / 3600;
  return `${hours < 10 ? hours.toFixed(1) : number(Math.round(hours))} GPU-h`;
}

export const plural = (count: number, one: string, many = `${one}s`): string =>
  `${number(count)} ${count === 1 ? one : many}`;

/** Kinds that could not be listed: what a page does not know is said. */
export function Unseen({ unseen }: { unseen: Json | undefined }): JSX.Element | null {
  if (!Array.isArray(unseen) || !unseen.length) return null;
  return (
    <p class="unseen">
      Not seen, for want of rights or because the cluster does not have them: {unseen.map(String).join(", ")}.
    </p>
  );
}
