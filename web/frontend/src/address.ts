// Where the reader is: the path names the page, the query the rest of the view.

import { computed, signal } from "@preact/signals";

export interface Address {
  page: string;
  /** What the server calls the page: one queue is the page of queues, from that queue down. */
  wire: string;
  /** What the page is about, for the server: name, or kind, namespace and name. */
  subject: Record<string, string>;
  query: URLSearchParams;
  path: string;
}

/** Pages with a subject: the segment of the path, and what its further segments are. */
const SUBJECTS: Record<string, string[]> = {
  workload: ["kind", "namespace", "name"],
  preemption: ["name"],
  queue: ["name"],
};

export function addressOf(path: string, search: string): Address {
  const [first = "", ...rest] = path.split("/").filter(Boolean).map(decode);
  const names = SUBJECTS[first] ?? [];
  const subject: Record<string, string> = {};
  names.forEach((name, index) => {
    if (rest[index]) subject[name] = rest[index];
  });
  const page = first || "now";
  return { page, wire: page === "queue" ? "queues" : page, subject, query: new URLSearchParams(search), path };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

const place = signal(addressOf(location.pathname, location.search));
export const address = computed(() => place.value);

/** Filters that mean the same on every page and go along from page to page. */
const KEPT = ["ns", "resource"];

/** The address of another page, with the filters that hold everywhere. */
export function to(path: string): string {
  const query = new URLSearchParams();
  for (const name of KEPT) {
    for (const value of place.value.query.getAll(name)) query.append(name, value);
  }
  const said = query.toString();
  return said ? `${path}?${said}` : path;
}

export const workloadPath = (id: string): string =>
  to(`/workload/${id.split("/").map(encodeURIComponent).join("/")}`);
export const preemptionPath = (name: string): string =>
  to(`/preemption/${encodeURIComponent(name)}`);
export const queuePath = (name: string): string => to(`/queue/${encodeURIComponent(name)}`);

/** The namespaces that may be seen; null: all of them. */
export const seen = signal<string[] | null>(null);

/** The option of a command that asks for the same namespace, or for all where the viewer sees all. */
export function inNamespace(): string {
  const [only, ...others] = place.value.query.getAll("ns");
  if (only && !others.length) return ` -n ${only}`;
  return seen.value ? ` -n ${only ?? seen.value[0] ?? "NAMESPACE"}` : " -A";
}

/** A command that only who sees the whole cluster may run; nothing for others. */
export const ifAll = (command: string): string => (seen.value ? "" : command);

export function go(href: string): void {
  history.pushState(null, "", href);
  arrive();
  scrollTo(0, 0);
  document.querySelector<HTMLElement>("main")?.focus({ preventScroll: true });
}

/** Begin with another page than the first one, for who sees a part of the cluster. */
export function beginAt(path: string): void {
  if (location.pathname !== "/" || location.search) return;
  history.replaceState(null, "", path);
  arrive();
}

/** Change the query in place: the view is another, the page the same. */
export function setQuery(name: string, values: string[]): void {
  const query = new URLSearchParams(place.value.query);
  query.delete(name);
  for (const value of values) if (value) query.append(name, value);
  const said = query.toString();
  history.replaceState(null, "", said ? `${place.value.path}?${said}` : place.value.path);
  arrive();
}

function arrive(): void {
  place.value = addressOf(location.pathname, location.search);
}

addEventListener("popstate", arrive);
document.addEventListener("click", (event) => {
  const link = (event.target as Element).closest?.("a[href]") as HTMLAnchorElement | null;
  const plain = !event.defaultPrevented && event.button === 0;
  const modified = event.metaKey || event.ctrlKey || event.shiftKey || event.altKey;
  if (!link || !plain || modified || link.target || link.hasAttribute("download")) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || url.pathname.startsWith("/api/")) return;
  if (url.pathname.startsWith("/assets/") || url.hash) return;
  event.preventDefault();
  go(url.pathname + url.search);
});
