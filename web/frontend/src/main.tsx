// The page: a session, an address, and the view of what the server tells about it.

import { effect } from "@preact/signals";
import { type JSX, render } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { address, to } from "./address.ts";
import { shownAt } from "./clock.ts";
import { Rest } from "./generic.tsx";
import { capital } from "./format.ts";
import { Live } from "./live.ts";
import { Notice, Title } from "./parts.tsx";
import { Harm } from "./pages/harm.tsx";
import { Health } from "./pages/health.tsx";
import { LoginPage } from "./pages/login.tsx";
import { Mine } from "./pages/mine.tsx";
import { Now } from "./pages/now.tsx";
import { Plan } from "./pages/plan.tsx";
import { Preemption } from "./pages/preemption.tsx";
import { Preemptions } from "./pages/preemptions.tsx";
import { Queues } from "./pages/queues.tsx";
import { Study } from "./pages/study.tsx";
import { Waiting } from "./pages/waiting.tsx";
import { Workload } from "./pages/workload.tsx";
import { ask, session } from "./session.ts";
import { PAGES } from "./site.ts";
import { Shell } from "./shell.tsx";
import { serverQuery } from "./table.tsx";
import type { PageState } from "./topic_state.ts";
import type { Session } from "./wire.ts";

export type View = (props: { state: PageState; version: number }) => JSX.Element;

const VIEWS: Record<string, View> = {
  now: Now,
  mine: Mine,
  waiting: Waiting,
  workload: Workload,
  preemptions: Preemptions,
  preemption: Preemption,
  queues: Queues,
  queue: Queues,
  harm: Harm,
  health: Health,
};
/** Pages that ask the server for nothing by themselves. */
const STILL: Record<string, () => JSX.Element> = { plan: Plan, study: Study };

function App(): JSX.Element {
  const found = session.value;
  if (found.kind === "asking") return <main class="bare" />;
  if (found.kind === "login") return <LoginPage wanted={found.wanted} />;
  if (found.kind === "unreachable") {
    return (
      <main class="bare">
        <Notice title="The server does not answer">
          <p>{found.error || "Is `reprieve dashboard` still running? This page continues by itself once it does."}</p>
        </Notice>
      </main>
    );
  }
  return <Page session={found.session} />;
}

function Page({ session: who }: { session: Session }): JSX.Element {
  const { page, wire } = address.value;
  const Still = STILL[page];
  if (Still) {
    return (
      <Shell session={who} status={null} state={null}>
        <Still />
      </Shell>
    );
  }
  const parameters = serverQuery();
  const url = `/api/live?page=${encodeURIComponent(wire)}${parameters && `&${parameters}`}`;
  return <LivePage url={url} session={who} />;
}

function LivePage({ url, session: who }: { url: string; session: Session }): JSX.Element {
  // Another address is another stream; the frame around it stays, and with it what has the focus.
  const live = useMemo(() => new Live(url, who.viewer), [url, who.viewer]);
  useEffect(() => () => live.close(), [live]);
  const version = live.version.value;
  const status = live.status.value;
  const { state } = live;
  useEffect(() => {
    // A session that is over wants a new login; a right that is over leaves the session as it is.
    if (status.kind === "ended" || (status.kind === "refused" && status.status === 401)) void ask();
  }, [status.kind]);
  return (
    <Shell session={who} status={status} state={state}>
      {state ? <Shown state={state} version={version} /> : <Absent live={live} />}
    </Shell>
  );
}

function Shown({ state, version }: { state: PageState; version: number }): JSX.Element {
  const View = VIEWS[address.value.page];
  if (View) return <View state={state} version={version} />;
  return (
    <>
      <Title>{capital(state.page)}</Title>
      <Rest state={state} shown={[]} />
    </>
  );
}

function Absent({ live }: { live: Live }): JSX.Element {
  const status = live.status.value;
  const { page, subject } = address.value;
  if (status.kind === "ended") {
    return (
      <Notice title="You may no longer see this">
        <p>{status.error}</p>
        <p><button type="button" onClick={() => location.reload()}>Look again</button></p>
      </Notice>
    );
  }
  if (status.kind !== "refused") return <p class="loading">Loading…</p>;
  const what = Object.values(subject).join("/");
  return (
    <Notice title={status.status === 404 ? `There is no ${page}${what ? ` ${what}` : ""}, or none that you may see` : "This cannot be shown"}>
      <p>{status.error}</p>
      <p><a href={to("/")}>To the page Now</a></p>
    </Notice>
  );
}

effect(() => {
  const { page, subject } = address.value;
  const found = session.value;
  const cluster = found.kind === "here" ? ` · ${found.session.cluster}` : "";
  document.title = `${subject["name"] ?? PAGES.find(([each]) => each === page)?.[2] ?? capital(page)}${cluster} · Reprieve`;
});

effect(() => {
  const { page, query } = address.value;
  const at = Number(query.get("at") ?? "");
  shownAt.value = page === "now" && at > 0 ? at : null;
});

void ask();
const place = document.getElementById("page")!;
place.textContent = "";
render(<App />, place);
