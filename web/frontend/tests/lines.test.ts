// Lines of JSON are read as they come, however the network cuts them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { linesOf } from "../src/lines.ts";

const OBJECTS = [{ complete: false, answer: { verdict: "wartet über Nacht" } }, { complete: true }];

function answer(text: string, length: number): Response {
  const bytes = new TextEncoder().encode(text);
  const parts = Array.from({ length: Math.ceil(bytes.length / length) }, (_, part) => bytes.slice(part * length, (part + 1) * length));
  return new Response(
    new ReadableStream({
      pull(controller) {
        const part = parts.shift();
        if (part) controller.enqueue(part);
        else controller.close();
      },
    }),
  );
}

for (const length of [1, 2, 7, 10_000]) {
  for (const end of ["\n", ""]) {
    test(`in parts of ${length} bytes${end ? "" : ", without a last newline"}`, async () => {
      const found = [];
      for await (const each of linesOf(answer(OBJECTS.map((each) => JSON.stringify(each)).join("\n\n") + end, length))) found.push(each);
      assert.deepEqual(found, OBJECTS);
    });
  }
}
