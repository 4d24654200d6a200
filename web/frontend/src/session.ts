// Who looks at which cluster, asked once; without an answer there is no page.

import { signal } from "@preact/signals";
import { beginAt, seen } from "./address.ts";
import { learn } from "./clock.ts";
import { type Session, errorOf } from "./wire.ts";

export type SessionState =
  | { kind: "asking" }
  | { kind: "unreachable"; error: string }
  /** `wanted`: what the server says is to be given. */
  | { kind: "login"; wanted: string }
  | { kind: "here"; session: Session };

export const session = signal<SessionState>({ kind: "asking" });

let retry = 0;

export async function ask(): Promise<void> {
  clearTimeout(retry);
  try {
    const answer = await fetch("/api/session", { cache: "no-store" });
    learn(answer);
    if (answer.status === 401) {
      session.value = { kind: "login", wanted: await errorOf(answer) };
    } else if (!answer.ok) {
      throw new Error(await errorOf(answer));
    } else {
      const found = (await answer.json()) as Session;
      if (session.value.kind !== "here" && found.home === "mine") beginAt("/mine");
      seen.value = found.home === "mine" ? (found.own ?? found.namespaces ?? []) : null;
      session.value = { kind: "here", session: found };
    }
  } catch (fault) {
    session.value = { kind: "unreachable", error: fault instanceof Error ? fault.message : "" };
    retry = window.setTimeout(() => void ask(), 2000);
  }
}

/** Return why the server did not let the token in; empty when it did. */
export async function login(token: string): Promise<string> {
  try {
    const answer = await fetch("/api/login", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ token }),
    });
    if (!answer.ok) return await errorOf(answer);
    await ask();
    return "";
  } catch {
    return "The server does not answer.";
  }
}

export async function logout(): Promise<void> {
  await fetch("/api/logout", { method: "POST" }).catch(() => {});
  await ask();
}
