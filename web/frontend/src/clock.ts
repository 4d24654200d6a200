// The server's time, which ages are counted from: its last word, and what has passed here since.

import { signal } from "@preact/signals";

let offset = 0;

/** Seconds since the epoch by the server's clock, told anew once a second while the page is seen. */
export const second = signal(Date.now() / 1000);

/** The instant that is shown, where that is one of the past: ages are counted up to it. */
export const shownAt = signal<number | null>(null);

/** Learn the server's time from an answer. A page tells when it last changed, which may be long ago. */
export function learn(answer: Response): void {
  const told = Date.parse(answer.headers.get("Date") ?? "");
  if (Number.isNaN(told)) return;
  // A date has whole seconds: within two of them the clocks are the same.
  const found = (told + 500 - Date.now()) / 1000;
  const next = Math.abs(found) < 2 ? 0 : found;
  if (Math.abs(next - offset) < 1.5) return;
  offset = next;
  tick();
}

/** Seconds since the epoch, by the server's clock as far as it is known. */
export const serverNow = (): number => Date.now() / 1000 + offset;

function tick(): void {
  second.value = serverNow();
}

setInterval(() => {
  if (!document.hidden) tick();
}, 1000);
document.addEventListener("visibilitychange", tick);
