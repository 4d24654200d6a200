// Answers that come in lines of JSON, each as soon as it is known.

import { type JsonObject, isObject } from "./wire.ts";

export const LINES = "application/x-ndjson";

/** The objects of an answer, one a line, as they come. */
export async function* linesOf(answer: Response): AsyncGenerator<JsonObject> {
  if (!answer.body) return;
  const reader = answer.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    rest += decoder.decode(value, { stream: !done });
    const lines = rest.split("\n");
    rest = done ? "" : lines.pop()!;
    for (const line of lines) {
      if (!line.trim()) continue;
      const found: unknown = JSON.parse(line);
      if (isObject(found as JsonObject)) yield found as JsonObject;
    }
    if (done) return;
  }
}
