// Files of what is shown are in the server's forms.

import assert from "node:assert/strict";
import { test } from "node:test";
import { csv, json } from "../src/files.ts";
import { tableOf } from "../src/topic_state.ts";

const table = tableOf({
  columns: [["unit", "unit"], ["since", "instant"], ["whose", "list"], ["dry", "flag"]],
  slots: [3, 4],
  data: [["=cmd", 'a "b", c'], [0.5, null], [["x", "y"], []], [true, false]],
});

test("a file has the rows that are shown, in their order, and no formulas", () => {
  const lines = ["unit,since,whose,dry", '"a ""b"", c",,,false', "'=cmd,1970-01-01T00:00:00Z,x; y,true", ""];
  assert.equal(csv(table, [4, 3]), lines.join("\r\n"));
  assert.equal(csv(table, [3]), [lines[0], lines[2], ""].join("\r\n"));
  assert.deepEqual(JSON.parse(json(table, [3])), [{ unit: "=cmd", since: 0.5, whose: ["x", "y"], dry: true }]);
});
