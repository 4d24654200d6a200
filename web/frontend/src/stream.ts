// One stream of server-sent events, opened again from where it stopped until it is closed.
//
// A stream of which nothing was heard for 35 seconds (the server sends a comment every 15) is taken
// for dead. Refusals that stay are told once; what may pass (no server, 429, 5xx) is tried again.

import { learn } from "./clock.ts";
import { EventReader, type ServerEvent } from "./events.ts";
import { errorOf } from "./wire.ts";

const SILENCE_MS = 35_000;
const PAUSES_MS = [300, 1000, 2000, 5000];
const REFUSED_PAUSE_MS = 10_000;

export interface StreamHandler {
  event(event: ServerEvent): void;
  /** Something came, if only a comment: the connection is alive. */
  heard(): void;
  lost(): void;
  refused(status: number, error: string): void;
  /** What to go on from, `epoch.sequence`; empty: from a snapshot. */
  position(): string;
}

export class Stream {
  private abort = new AbortController();
  private closed = false;
  private failures = 0;
  private wake: () => void = () => {};
  private heardAt = 0;
  private openedAt = 0;

  private readonly url: string;
  private readonly handler: StreamHandler;

  constructor(url: string, handler: StreamHandler) {
    this.url = url;
    this.handler = handler;
    addEventListener("online", this.hurry);
    void this.run();
  }

  close(): void {
    this.closed = true;
    removeEventListener("online", this.hurry);
    this.abort.abort();
    this.wake();
  }

  /** Whether what comes now just happened, rather than being told to one who came later. */
  get isCurrent(): boolean {
    return performance.now() - this.openedAt > 1000;
  }

  /** Drop the connection and open it again at once. */
  reopen(): void {
    this.failures = 0;
    this.abort.abort();
  }

  private readonly hurry = (): void => this.wake();

  private async run(): Promise<void> {
    while (!this.closed) {
      const pause = await this.once();
      if (this.closed) return;
      if (pause) await this.sleep(pause);
    }
  }

  /** Read until the stream ends; return after how many milliseconds to try again. */
  private async once(): Promise<number> {
    this.abort = new AbortController();
    const { signal } = this.abort;
    this.heardAt = performance.now();
    const watch = setInterval(() => {
      if (performance.now() - this.heardAt > SILENCE_MS) this.abort.abort();
    }, 1000);
    try {
      const from = this.handler.position();
      const url = from ? `${this.url}&from=${encodeURIComponent(from)}` : this.url;
      const headers = { Accept: "text/event-stream" };
      const answer = await fetch(url, { headers, signal, cache: "no-store" });
      learn(answer);
      this.openedAt = performance.now();
      if (!answer.ok || !answer.body) {
        const error = await errorOf(answer);
        if (answer.status === 429 || answer.status >= 500) throw new Error(error);
        if (!this.closed) this.handler.refused(answer.status, error);
        return REFUSED_PAUSE_MS;
      }
      await this.read(answer.body);
    } catch {
      // Lost, aborted or refused for now: all the same to the reader.
    } finally {
      clearInterval(watch);
    }
    if (this.closed) return 0;
    this.handler.lost();
    const pause = PAUSES_MS[Math.min(this.failures, PAUSES_MS.length - 1)]!;
    this.failures += 1;
    return pause * (0.75 + Math.random() / 2);
  }

  private async read(body: ReadableStream<Uint8Array>): Promise<void> {
    const chunks = body.pipeThrough(new TextDecoderStream() as never).getReader() as
      ReadableStreamDefaultReader<string>;
    const events = new EventReader();
    for (;;) {
      const { done, value } = await chunks.read();
      if (done || this.closed) return;
      this.heardAt = performance.now();
      this.failures = 0;
      this.handler.heard();
      for (const event of events.read(value)) this.handler.event(event);
    }
  }

  private sleep(milliseconds: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, milliseconds);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
