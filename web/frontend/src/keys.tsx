// Everything by keyboard: single keys that work wherever nothing is typed, and the list of them.
//
// Single letters can be turned off (WCAG 2.1.4), since speech input types them by accident.

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { go, to } from "./address.ts";
import { PAGES } from "./site.ts";
import { toggleTheme } from "./theme.ts";

export const keysShown = signal(false);
const letters = signal(localStorage.getItem("keys") !== "off");

const KEYS: [keys: string, does: string][] = [
  ["/", "search in the tables of the page"],
  ["j or ↓, k or ↑", "next and previous row"],
  ["Page Up, Page Down, Home, End", "further in a table"],
  ["Enter", "open what the row is about"],
  ["← →", "close and open a branch; from node to node on the map"],
  ["g, then n m w p q r l s h", "open Now, My work, Waiting, Preemptions, Queues, haRm, pLan, Study, Health"],
  ["t", "the other theme"],
  ["Esc", "leave the search, close this list"],
  ["?", "this list"],
];
const GOES: Record<string, string> = {
  n: "now", m: "mine", w: "waiting", p: "preemptions", q: "queues", r: "harm", l: "plan", s: "study", h: "health",
};

let gone = 0;

function pressed(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  const target = event.target as HTMLElement;
  if (event.key === "Escape" && target.id === "search") {
    target.blur();
    return;
  }
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || !letters.value || keysShown.value) return;
  const went = performance.now() - gone < 1500 ? PAGES.find(([page]) => page === GOES[event.key]) : undefined;
  gone = 0;
  if (went) go(to(went[1]));
  else if (event.key === "g") gone = performance.now();
  else if (event.key === "/") document.getElementById("search")?.focus();
  else if (event.key === "?") keysShown.value = true;
  else if (event.key === "t") toggleTheme();
  else if (event.key === "j" || event.key === "k") {
    document.querySelector<HTMLElement>("main [role=grid], main [role=treegrid]")?.focus();
  } else return;
  event.preventDefault();
}

document.addEventListener("keydown", pressed);

export function KeysDialog(): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const shown = keysShown.value;
  useLayoutEffect(() => {
    if (shown && !dialog.current?.open) dialog.current?.showModal();
    if (!shown && dialog.current?.open) dialog.current.close();
  }, [shown]);
  return (
    <dialog ref={dialog} aria-labelledby="keys-title" onClose={() => (keysShown.value = false)}>
      <h2 id="keys-title">Keys</h2>
      <dl class="keys">
        {KEYS.map(([keys, does]) => (
          <div key={keys}>
            <dt><kbd>{keys}</kbd></dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
      <p>
        <label>
          <input type="checkbox" checked={letters.value} onChange={(event) => {
            letters.value = event.currentTarget.checked;
            localStorage.setItem("keys", letters.value ? "on" : "off");
          }} />{" "}
          Single keys do something
        </label>
      </p>
      <button type="button" onClick={() => (keysShown.value = false)}>Close</button>
    </dialog>
  );
}
