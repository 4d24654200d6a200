// The frame around every page: where one is, what is filtered, whether it is live.

import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { address, setQuery, to } from "./address.ts";
import { duration, instant } from "./format.ts";
import { KeysDialog, keysShown } from "./keys.tsx";
import type { Status } from "./live.ts";
import { logout } from "./session.ts";
import { PAGES } from "./site.ts";
import { Notice } from "./parts.tsx";
import { Tour } from "./tour.tsx";
import { theme, toggleTheme } from "./theme.ts";
import { second } from "./clock.ts";
import type { PageState } from "./topic_state.ts";
import { type Json, type Session, textOf } from "./wire.ts";

/** Pages about one thing belong to the page that lists them. */
const WITHIN: Record<string, string> = { preemption: "preemptions", queue: "queues" };
const FILTERED = new Set(["now", "mine", "waiting", "preemptions", "queues", "queue"]);

interface ShellProps {
  session: Session;
  status: Status | null;
  state: PageState | null;
  children: ComponentChildren;
}

export function Shell({ session, status, state, children }: ShellProps): JSX.Element {
  const { page } = address.value;
  const here = WITHIN[page] ?? page;
  const named = address.value.query.getAll("ns");
  const denied = ((state?.values["denied"] as Json[] | undefined) ?? []).map(textOf);
  // A page of nothing would claim that there are no queues and no work.
  const nothing = FILTERED.has(page) && session.namespaces !== null
    && (named.length ? denied.length === named.length : !session.namespaces.length);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => {
        event.preventDefault();
        document.getElementById("main")?.focus();
      }}>Skip to the content</a>
      <header class="frame-head">
        <div class="line">
          <a class="brand" href={to("/")}>Reprieve</a>
          <span class="cluster" title="the cluster">{session.cluster}</span>
          {status && <Connection status={status} />}
          <span class="room" />
          {session.insecure && <span class="word attention">no login</span>}
          <span class="viewer">{session.viewer}</span>
          <button type="button" class="quiet" onClick={toggleTheme} aria-label={`to the ${theme.value === "dark" ? "light" : "dark"} theme`}>
            {theme.value === "dark" ? "Light" : "Dark"}
          </button>
          <button type="button" class="quiet" aria-label="keys" aria-keyshortcuts="?" onClick={() => (keysShown.value = true)}>?</button>
          {session.mode === "web" && !session.insecure && (
            <button type="button" class="quiet" onClick={() => void logout()}>Log out</button>
          )}
        </div>
        <div class="line">
          <nav aria-label="Pages">
            {PAGES.map(([name, path, title]) => (
              <a key={name} href={to(path)} aria-current={name === page ? "page" : name === here ? "true" : undefined}>{title}</a>
            ))}
          </nav>
          <span class="room" />
          {status && <Filters page={page} state={state} session={session} />}
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        <Seen session={session} denied={denied} filtered={FILTERED.has(page)} />
        {session.home !== undefined && state && <Tour page={page} />}
        {nothing ? <YourNamespace denied={denied} /> : children}
      </main>
      <KeysDialog />
    </>
  );
}

/** Whose work is shown to who sees a part of the cluster, and what of the named is not. */
function Seen({ session, denied, filtered }: { session: Session; denied: string[]; filtered: boolean }): JSX.Element | null {
  const named = address.value.query.getAll("ns");
  if (!filtered || !session.namespaces) return null;
  if (denied.length && denied.length < named.length) {
    return <p class="unseen">Not shown: {denied.join(", ")}. You may not list pods there, or there is no such namespace.</p>;
  }
  if (named.length || !session.namespaces.length) return null;
  return (
    <p class="unseen">
      You see the work of {session.namespaces.join(", ")}; another namespace is shown, where you may see it, once it is named above.
    </p>
  );
}

/** Asks for a namespace, where none is named that the viewer sees. */
function YourNamespace({ denied }: { denied: string[] }): JSX.Element {
  const show = (event: SubmitEvent): void => {
    event.preventDefault();
    const wanted = String(new FormData(event.currentTarget as HTMLFormElement).get("namespace") ?? "").trim();
    if (wanted) setQuery("ns", [wanted]);
  };
  return (
    <Notice title="Which namespace is yours?">
      {denied.length > 0 && <p role="alert">You may not list pods in {denied.join(", ")}, or there is no such namespace.</p>}
      <p>This page shows the work of namespaces in which you may list pods: your queues, what runs, what waits and why, and what was preempted.</p>
      <form class="asked" onSubmit={show}>
        <label>Your namespace <input name="namespace" autocomplete="off" spellcheck={false} required /></label>{" "}
        <button type="submit">Show</button>
      </form>
    </Notice>
  );
}

function Connection({ status }: { status: Status }): JSX.Element {
  const [word, said] = connectionText(status);
  return (
    <span class={`connection ${word}`} role="status">
      <svg class="sign" viewBox="0 0 12 12" aria-hidden="true">
        {word === "live" ? <circle cx="6" cy="6" r="4" class="fill" /> : word === "bad" ? <path d="M6 1 11.3 10.5H.7z" class="fill" /> : <circle cx="6" cy="6" r="4" class="line" />}
      </svg>
      {said}
    </span>
  );
}

function connectionText(status: Status): ["live" | "wait" | "bad", string] {
  const { kind } = status;
  if (kind === "live") return ["live", status.lag === null ? "live" : `live ${status.lag < 9.95 ? `${status.lag.toFixed(1)} s` : duration(status.lag)}`];
  if (kind === "connecting") return ["wait", "connecting"];
  if (kind === "paused") return ["wait", "paused"];
  if (kind === "reconnecting") {
    // Looked at again every second, since it turns from a hiccup into stale figures.
    void second.value;
    const passed = (Date.now() - status.since) / 1000;
    return passed < 5 ? ["wait", "reconnecting"] : ["bad", `stale since ${instant(status.since / 1000).slice(11)}`];
  }
  return ["bad", kind === "ended" ? "ended" : "not shown"];
}

/** What is being typed, until the address has it. */
const typed = signal<string | null>(null);
/** Somebody is at the field of namespaces: only then they are gathered from the tables. */
const listed = signal(false);
let pause = 0;

function Filters({ page, state, session }: { page: string; state: PageState | null; session: Session }): JSX.Element {
  const { query } = address.value;
  const namespaces = query.getAll("ns");
  const search = query.get("search") ?? "";
  const resources = (state?.values["resources"] as Json[] | undefined)?.map(textOf).filter(Boolean) ?? [];
  const resource = query.get("resource") ?? textOf(state?.values["resource"]);
  const known = listed.value ? namespacesOf(state, session) : [];
  return (
    <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
      {FILTERED.has(page) && (
        <>
          {namespaces.map((name) => (
            <button key={name} type="button" class="chip" aria-label={`show other namespaces than ${name} again`} onClick={() => setQuery("ns", namespaces.filter((each) => each !== name))}>
              ns: {name} <span aria-hidden="true">×</span>
            </button>
          ))}
          <label>
            <span class="hidden">Namespace to show</span>
            <input class="ns" list="namespaces" placeholder="namespace" autocomplete="off" spellcheck={false} onFocus={() => (listed.value = true)} onBlur={() => (listed.value = false)} onChange={(event) => {
              const wanted = event.currentTarget.value.trim();
              event.currentTarget.value = "";
              if (wanted && !namespaces.includes(wanted)) setQuery("ns", [...namespaces, wanted]);
            }} />
          </label>
          <datalist id="namespaces">{known.map((name) => <option key={name} value={name} />)}</datalist>
          {resources.length > 1 && (
            <label>
              <span class="hidden">Resource</span>
              <select value={resource} onChange={(event) => setQuery("resource", [event.currentTarget.value === resources[0] ? "" : event.currentTarget.value])}>
                {resources.map((name) => <option key={name} value={name} selected={name === resource}>{name}</option>)}
              </select>
            </label>
          )}
        </>
      )}
      <label>
        <span class="hidden">Search in the tables</span>
        <input id="search" type="search" placeholder="/ search" aria-keyshortcuts="/" spellcheck={false} value={typed.value ?? search} onInput={(event) => {
          const wanted = event.currentTarget.value;
          typed.value = wanted;
          clearTimeout(pause);
          pause = window.setTimeout(() => {
            typed.value = null;
            setQuery("search", [wanted.trim()]);
          }, 120);
        }} />
      </label>
    </form>
  );
}

function namespacesOf(state: PageState | null, session: Session): string[] {
  if (session.namespaces) return session.namespaces;
  const found = new Set<string>();
  for (const table of Object.values(state?.tables ?? {})) {
    table.columns.forEach(([, kind], index) => {
      if (kind !== "unit") return;
      for (const cell of table.data[index]!.slice(0, 5000)) {
        const parts = String(cell ?? "").split("/");
        if (parts.length === 3) found.add(parts[1]!);
      }
    });
  }
  return [...found].sort().slice(0, 500);
}
