// The server's time, which ages are counted from: its last word, and what has passed here since.

import { signal } from "@preact/signals";

let offset = 0;

/** Seconds since the epoch by the server's clock, told anew once a second while the page is seen. */
export const second = signal(Date.now() / 1000);

export function learn(serverNow: number): void {
  // Steps below a second are the way here, not the clocks.
  const found = serverNow - Date.now() / 1000;
  if (Math.abs(found - offset) > 1) {
    offset = found;
    tick();
  }
}

function tick(): void {
  second.value = Date.now() / 1000 + offset;
}

setInterval(() => {
  if (!document.hidden) tick();
}, 1000);
document.addEventListener("visibilitychange", tick);
