// A page kept up with the server: one stream for all windows of a browser that show the same page.
//
// The window that holds the Web Lock of a page reads its stream and passes every event on over a
// BroadcastChannel; the others merge what they are passed, just as if they had read it. When it
// closes, the lock falls to the next, which goes on from where itself is. A window that nobody sees
// for a while lets go of both, and resumes from the server's ring when it is looked at again. Where
// there are no locks (no secure context) every window reads for itself.

import { signal } from "@preact/signals";
import { serverNow } from "./clock.ts";
import type { ServerEvent } from "./events.ts";
import { Stream, type StreamHandler } from "./stream.ts";
import { type PageState, advance, begun, snapshotOf } from "./topic_state.ts";
import type { Difference, Snapshot } from "./wire.ts";

const HIDDEN_MS = 15_000;
/** The window that reads passes on at least a comment every 15 seconds. */
const SILENCE_MS = 45_000;

export type Status =
  | { kind: "connecting" }
  /** `lag`: seconds from the server's word to here, of the last change. */
  | { kind: "live"; lag: number | null }
  /** `since`: when the connection was lost, by this machine's clock in milliseconds. */
  | { kind: "reconnecting"; since: number }
  | { kind: "paused"; since: number }
  | { kind: "refused"; status: number; error: string }
  | { kind: "ended"; error: string };

type Message =
  | { type: "event"; event: ServerEvent }
  | { type: "heard" }
  | { type: "status"; status: Status }
  | { type: "hello" };

export class Live implements StreamHandler {
  readonly status = signal<Status>({ kind: "connecting" });
  /** Rises with every change of the state. */
  readonly version = signal(0);
  state: PageState | null = null;

  private readonly url: string;
  private readonly lock: string;
  private readonly shared = "locks" in navigator && "BroadcastChannel" in window;
  private readonly channel: BroadcastChannel | null;
  private stream: Stream | null = null;
  private release: (() => void) | null = null;
  private waiting: AbortController | null = null;
  private hideTimer = 0;
  private heardAt = Date.now();
  private readonly watch = setInterval(() => this.listen(), 5000);
  private hiddenLong = false;
  private closed = false;

  constructor(url: string, viewer: string) {
    this.url = url;
    this.lock = `stream of ${viewer}: ${url}`;
    this.channel = this.shared ? new BroadcastChannel(this.lock) : null;
    if (this.channel) this.channel.onmessage = (message) => this.told(message.data as Message);
    document.addEventListener("visibilitychange", this.seen);
    this.start();
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.hideTimer);
    clearInterval(this.watch);
    document.removeEventListener("visibilitychange", this.seen);
    this.stop();
    this.channel?.close();
    this.state = null;
  }

  // What the stream says, where this window is the one that reads it.

  position(): string {
    return this.state ? `${this.state.epoch}.${this.state.sequence}` : "";
  }

  heard(): void {
    this.alive();
    this.channel?.postMessage({ type: "heard" } satisfies Message);
  }

  lost(): void {
    const { kind } = this.status.value;
    if (kind === "ended") return;
    if (kind !== "reconnecting") this.say({ kind: "reconnecting", since: Date.now() });
  }

  refused(status: number, error: string): void {
    this.wipe();
    this.say({ kind: "refused", status, error });
  }

  event(event: ServerEvent): void {
    this.channel?.postMessage({ type: "event", event } satisfies Message);
    this.merge(event);
  }

  private start(): void {
    if (this.closed || this.stream || this.waiting) return;
    if (!this.shared) {
      this.stream = new Stream(this.url, this);
      return;
    }
    this.waiting = new AbortController();
    navigator.locks
      .request(this.lock, { signal: this.waiting.signal }, () => {
        this.waiting = null;
        if (this.closed || this.hiddenLong) return;
        this.stream = new Stream(this.url, this);
        return new Promise<void>((resolve) => (this.release = resolve));
      })
      .catch(() => {}); // Given up while it waited for the lock.
    this.channel?.postMessage({ type: "hello" } satisfies Message);
  }

  private stop(): void {
    this.waiting?.abort();
    this.waiting = null;
    this.stream?.close();
    this.stream = null;
    this.release?.();
    this.release = null;
  }

  private readonly seen = (): void => {
    clearTimeout(this.hideTimer);
    if (!document.hidden) {
      this.hiddenLong = false;
      this.start();
      return;
    }
    this.hideTimer = window.setTimeout(() => {
      this.hiddenLong = true;
      this.stop();
      if (this.status.value.kind === "live") {
        this.status.value = { kind: "paused", since: Date.now() };
      }
    }, HIDDEN_MS);
  };

  private told(message: Message): void {
    if (message.type === "hello") {
      if (!this.stream) return;
      if (this.state) {
        const data = JSON.stringify(snapshotOf(this.state));
        const event = { id: this.position(), event: "snapshot", data };
        this.channel?.postMessage({ type: "event", event } satisfies Message);
      }
      this.channel?.postMessage({ type: "status", status: this.status.value } satisfies Message);
    } else if (this.stream || this.hiddenLong) {
      return;
    } else if (message.type === "event") {
      this.merge(message.event);
    } else if (message.type === "heard") {
      this.alive();
    } else {
      if (message.status.kind === "refused" || message.status.kind === "ended") this.wipe();
      this.status.value = message.status;
    }
  }

  private merge({ event, data }: ServerEvent): void {
    try {
      if (event === "snapshot") this.begin(JSON.parse(data) as Snapshot);
      else if (event === "difference") this.advance(JSON.parse(data) as Difference);
      else if (event === "ended") this.end(data);
    } catch {
      // Out of step, or not readable: begin anew from a snapshot.
      this.state = null;
      if (this.stream) this.stream.reopen();
      else this.channel?.postMessage({ type: "hello" } satisfies Message);
    }
  }

  private begin(snapshot: Snapshot): void {
    const { state } = this;
    const known = state?.epoch === snapshot.epoch && state.sequence === snapshot.sequence;
    if (!known) this.state = begun(snapshot);
    this.arrived(null);
  }

  private advance(difference: Difference): void {
    if (!this.state) {
      if (!this.stream) return; // Passed on before the snapshot that was asked for.
      throw new Error("a difference before any snapshot");
    }
    if (difference.sequence <= this.state.sequence) return;
    advance(this.state, difference);
    const current = !this.stream || this.stream.isCurrent;
    this.arrived(current ? Math.max(0, serverNow() - difference.now) : null);
  }

  private arrived(lag: number | null): void {
    this.heardAt = Date.now();
    this.status.value = { kind: "live", lag };
    this.version.value += 1;
  }

  /** Say so when the window that reads for this one has fallen silent. */
  private listen(): void {
    if (this.stream || this.hiddenLong || this.status.value.kind !== "live") return;
    if (Date.now() - this.heardAt < SILENCE_MS) return;
    this.status.value = { kind: "reconnecting", since: this.heardAt };
  }

  private alive(): void {
    this.heardAt = Date.now();
    const { kind } = this.status.value;
    if (this.state && (kind === "reconnecting" || kind === "paused" || kind === "connecting")) {
      this.status.value = { kind: "live", lag: null };
    }
  }

  private end(data: string): void {
    let error = "";
    try {
      error = String((JSON.parse(data) as { error?: unknown }).error ?? "");
    } catch {
      // The end is what matters, whatever it says.
    }
    this.wipe();
    this.stop();
    this.status.value = { kind: "ended", error };
  }

  private wipe(): void {
    this.state = null;
    this.version.value += 1;
  }

  private say(status: Status): void {
    this.status.value = status;
    this.channel?.postMessage({ type: "status", status } satisfies Message);
  }
}
