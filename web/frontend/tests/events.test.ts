// Events are the same wherever the network cut them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { EventReader } from "../src/events.ts";

const STREAM = "id: e.1\nevent: snapshot\ndata: {\"a\":1}\n\n: still here\n\nid: e.2\nevent: difference\ndata: x\ndata: y\n\n";

test("a stream cut at every place says the same", () => {
  const whole = new EventReader().read(STREAM);
  assert.deepEqual(whole, [
    { id: "e.1", event: "snapshot", data: '{"a":1}' },
    { id: "e.2", event: "difference", data: "x\ny" },
  ]);
  for (let cut = 0; cut <= STREAM.length; cut++) {
    const reader = new EventReader();
    assert.deepEqual([...reader.read(STREAM.slice(0, cut)), ...reader.read(STREAM.slice(cut))], whole);
  }
});
