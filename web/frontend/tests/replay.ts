// Reads streams as the page does, for a test of the server: a JSON list of streams, each a list of
// pieces of text as a network may cut them, comes in; what each leaves on the page goes out.

import { readFileSync } from "node:fs";
import { EventReader } from "../src/events.ts";
import { type PageState, advance, begun } from "../src/topic_state.ts";
import type { Json } from "../src/wire.ts";

function replayed(pieces: string[]): Json {
  const reader = new EventReader();
  let state: PageState | null = null;
  for (const piece of pieces) {
    for (const { event, data } of reader.read(piece)) {
      if (event === "snapshot") state = begun(JSON.parse(data));
      else advance(state!, JSON.parse(data));
    }
  }
  const tables = Object.entries(state!.tables).map(([name, table]) => [
    name,
    table.slots.map((_, row) => table.data.map((column) => column[row] ?? null)),
  ]);
  return { values: state!.values, tables: Object.fromEntries(tables) as Json };
}

const streams = JSON.parse(readFileSync(0, "utf8")) as string[][];
process.stdout.write(JSON.stringify(streams.map(replayed)));
