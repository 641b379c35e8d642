// Tests of the page's models that no view can show: node vectors/model.mjs
import assert from "node:assert/strict";
import { vite } from "./sources.mjs";

const GATEWAY = "system:gateway";
const envelope = (kind, from, more) => ({ id: `${kind}-${from}`, ts: "", from, kind, payload: {}, ...more });

async function extractsSources() {
  const { sourceOf, sourcesOf } = await vite.ssrLoadModule("/src/model/exact.ts");
  const inner = String.raw`{ "x": 1.0, "}\"]\\": [1e400, {"y": -0}], "": "\u005d" }`;
  const text = ` {"a" :[${inner} , 12345678901234567890,"",[] ], "p\\u0061": {"b":null},"pa":{"b":${inner}}} `;
  JSON.parse(text);
  assert.equal(sourceOf(text, "pa", "b"), inner, "the last of two equal keys counts, as for JSON.parse");
  assert.equal(sourceOf(text, "pa", "c"), undefined);
  assert.equal(sourceOf(text, "a", "b"), undefined);
  assert.equal(sourceOf(text), text.trim());
  assert.deepEqual(sourcesOf(text, "a"), [inner, "12345678901234567890", '""', "[]"]);
  assert.deepEqual(sourcesOf(text, "nothing"), []);
  const long = JSON.stringify({ a: '\\"'.repeat(200_000), b: 1 });
  assert.equal(sourceOf(long, "b"), "1");
}

async function deletesEndedStreams() {
  const { Ownership } = await vite.ssrLoadModule("/src/model/ownership.ts");
  const ownership = new Ownership();
  const open = new Map([["stream-0", null]]);
  for (let number = 0; number < 3000; number += 1) {
    const stream = { stream_id: `stream-${number}`, owner: "alice" };
    ownership.update(envelope("stream/open", GATEWAY, { payload: { stream, owner: "alice" } }), number);
    ownership.removeEnded(open);
  }
  const retained = Array.from({ length: 3000 }, (_, number) => number).filter((number) => ownership.of(`stream-${number}`));
  assert.equal(retained.length, 501);
  assert.deepEqual(retained.slice(0, 2), [0, 2500], "open streams, and the last that ended");
}

async function limitsStoredOutcomes() {
  const { Proposals } = await vite.ssrLoadModule("/src/model/proposals.ts");
  const proposals = new Proposals();
  const big = "x".repeat(10_000);
  for (let position = 1; position <= 10_000; position += 1) {
    const end = { proposal: { position, digest: "" }, payload: { reason: `first ${big}`, big } };
    proposals.update(envelope("mcp/reject", "carol", end), position);
  }
  proposals.update(envelope("mcp/withdraw", "mallory", { correlation_id: ["proposed"] }), 10_001);
  const positions = [...proposals.ends.keys()];
  assert.deepEqual([positions.length, positions[0], positions.at(-1)], [2000, 8001, 10_000], "the newest, and only outcomes with a stamp");
  assert.ok(!JSON.stringify([...proposals.ends.values()]).includes(big));
  const stamp = { position: 10_000, digest: "", expires_at: "2030-01-01T00:00:00Z" };
  proposals.update(envelope("mcp/proposal", "bob", { id: "proposed", proposal: stamp, payload: { method: "tools/list" } }), 0);
  const [proposal] = proposals.decided();
  assert.deepEqual([proposal.state, proposal.by, proposal.reason.slice(0, 6)], ["rejected", "carol", "first "]);
}

try {
  for (const check of [extractsSources, deletesEndedStreams, limitsStoredOutcomes]) await check();
} finally {
  await vite.close();
}
