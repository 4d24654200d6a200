// Light or dark: as the system says, until the reader chooses.

import { effect, signal } from "@preact/signals";

export type Theme = "light" | "dark";

const system = matchMedia("(prefers-color-scheme: dark)");
const stored = localStorage.getItem("theme");

const chosen = signal<Theme | null>(stored === "light" || stored === "dark" ? stored : null);
const preferred = signal<Theme>(system.matches ? "dark" : "light");
system.addEventListener("change", () => (preferred.value = system.matches ? "dark" : "light"));

/** The theme that is shown. */
export const theme = signal<Theme>("light");

effect(() => {
  theme.value = chosen.value ?? preferred.value;
  document.documentElement.dataset.theme = theme.value;
});

export function toggleTheme(): void {
  const next = theme.peek() === "dark" ? "light" : "dark";
  // What the system says anyway is no choice: the page then follows the system again.
  chosen.value = next === preferred.peek() ? null : next;
  if (chosen.value) localStorage.setItem("theme", chosen.value);
  else localStorage.removeItem("theme");
}
