// A tour of three clicks: who holds, who waits and why, who was preempted for whom.
//
// It stands in the page, above its content, so that it hides nothing; once closed it never comes again.

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { go, to } from "./address.ts";

const KEPT = "tour";
const closed = signal(localStorage.getItem(KEPT) === "closed");
/** Which step is shown; 0 before the first click. */
const step = signal(0);

const STEPS: { page: string; path: string; section: string; title: string; text: string }[] = [
  {
    page: "now", path: "/", section: "Who holds", title: "Who holds GPUs",
    text: "Each row is a piece of work; rows are folded by queue. Idle is what it holds and does not use. A click on a name opens its life.",
  },
  {
    page: "waiting", path: "/waiting", section: "Who waits", title: "Who waits, and why",
    text: "Each row states what is missing and what helps, with the figures of the moment.",
  },
  {
    page: "preemptions", path: "/preemptions", section: "Decisions", title: "Who was preempted, and for whom",
    text: "Each row is a decision: the work that requested it, the work that was evicted for it, and what was lost. A click shows why these and no others.",
  },
];

export function endTour(): void {
  closed.value = true;
  localStorage.setItem(KEPT, "closed");
}

export function Tour({ page }: { page: string }): JSX.Element | null {
  const place = useRef<HTMLElement>(null);
  const now = STEPS[step.value - 1];
  const here = now?.page === page;
  useEffect(() => {
    if (!here || closed.value) return;
    const section = document.querySelector(`main [aria-label="${now.section}"]`);
    section?.classList.add("toured");
    return () => section?.classList.remove("toured");
  });
  if (closed.value || (now && !here)) return null;
  if (!now && page !== "now" && page !== "mine") return null;
  const next = STEPS[step.value];
  const on = (): void => {
    if (!next) return endTour();
    step.value += 1;
    go(to(next.path));
    requestAnimationFrame(() => place.current?.querySelector("button")?.focus());
  };
  return (
    <aside class="tour" aria-label="Tour" ref={place}>
      <p>
        {now ? <><strong>{step.value} of {STEPS.length}: {now.title}.</strong> {now.text}</> : <>New here? Three clicks show who holds GPUs, who waits and why, and who was preempted for whom.</>}
      </p>
      <button type="button" onClick={on}>{next ? (now ? `Next: ${next.title}` : "Begin") : "Done"}</button>
      {next && <button type="button" class="quiet" onClick={endTour}>{now ? "End the tour" : "Not now"}</button>}
    </aside>
  );
}
