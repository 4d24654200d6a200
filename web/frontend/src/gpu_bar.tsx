// Where all devices are, as one bar: each part by its pattern and its number.

import type { JSX } from "preact";
import { number } from "./format.ts";

export const PARTS = ["working", "idle", "claimed", "leaving", "free"] as const;
export type Part = (typeof PARTS)[number];
export type Amounts = Partial<Record<Part | "total", number>>;

/** The patterns that bars and legends refer to, once a page. */
export function Patterns(): JSX.Element {
  return (
    <svg class="patterns" width="0" height="0" aria-hidden="true">
      <defs>
        <pattern id="p-idle" width="6" height="6" patternUnits="userSpaceOnUse">
          <rect width="6" height="6" class="idle-back" />
          <circle cx="1.5" cy="1.5" r="1.1" class="idle-dot" />
          <circle cx="4.5" cy="4.5" r="1.1" class="idle-dot" />
        </pattern>
        <pattern id="p-claimed" width="5" height="5" patternUnits="userSpaceOnUse">
          <rect width="5" height="5" class="back" />
          <circle cx="2.5" cy="2.5" r="0.9" class="dot" />
        </pattern>
        <pattern id="p-leaving" width="6" height="6" patternUnits="userSpaceOnUse">
          <rect width="6" height="6" class="back" />
          <path d="M-1 7 7-1M-1 1 1-1M5 7 7 5" class="stripe" />
        </pattern>
      </defs>
    </svg>
  );
}

export function GpuBar({ amounts, label }: { amounts: Amounts; label: string }): JSX.Element {
  const total = amounts.total ?? PARTS.reduce((sum, part) => sum + (amounts[part] ?? 0), 0);
  let at = 0;
  const said = PARTS.map((part) => `${part} ${amounts[part] ?? 0}`).join(", ");
  return (
    <div class="gpu-bar">
      <svg role="img" aria-label={`${label}: ${total}, of which ${said}`} width="100%" height="28">
        {PARTS.map((part) => {
          const width = total > 0 ? ((amounts[part] ?? 0) / total) * 100 : 0;
          const x = at;
          at += width;
          return width > 0 && (
            <rect key={part} class={`part ${part}`} x={`${x}%`} width={`${width}%`} y="0.5" height="27" />
          );
        })}
        <rect class="frame" x="0.5" y="0.5" width="100%" height="27" />
      </svg>
      <dl class="legend">
        <div class="total">
          <dt>{label}</dt>
          <dd>{number(total)}</dd>
        </div>
        {PARTS.map((part) => (
          <div key={part}>
            <dt>
              <Swatch part={part} />
              {part}
            </dt>
            <dd>{number(amounts[part] ?? 0)}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

export function Swatch({ part }: { part: Part }): JSX.Element {
  return (
    <svg class="swatch" width="14" height="14" aria-hidden="true">
      <rect class={`part ${part}`} x="0.5" y="0.5" width="13" height="13" />
      <rect class="frame" x="0.5" y="0.5" width="13" height="13" />
    </svg>
  );
}
