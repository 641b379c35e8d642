// What the page's models keep and cut out, where no view shows it: node vectors/model.mjs
import assert from "node:assert/strict";
import { vite } from "./sources.mjs";

const GATEWAY = "system:gateway";
const said = (kind, from, more) => ({ id: `${kind}-${from}`, ts: "", from, kind, payload: {}, ...more });

async function cutsOut() {
  const { sourceOf, sourcesOf } = await vite.ssrLoadModule("/src/model/exact.ts");
  const inner = String.raw`{ "x": 1.0, "}\"]\\": [1e400, {"y": -0}], "": "\u005d" }`;
  const text = ` {"a" :[${inner} , 12345678901234567890,"",[] ], "p\\u0061": {"b":null},"pa":{"b":${inner}}} `;
  JSON.parse(text);
  assert.equal(sourceOf(text, "pa", "b"), inner, "the last of two keys counts, as it does for JSON.parse");
  assert.equal(sourceOf(text, "pa", "c"), undefined);
  assert.equal(sourceOf(text, "a", "b"), undefined);
  assert.equal(sourceOf(text), text.trim());
  assert.deepEqual(sourcesOf(text, "a"), [inner, "12345678901234567890", '""', "[]"]);
  assert.deepEqual(sourcesOf(text, "nothing"), []);
  const long = JSON.stringify({ a: '\\"'.repeat(200_000), b: 1 });
  assert.equal(sourceOf(long, "b"), "1");
}

async function forgetsStreams() {
  const { Ownership } = await vite.ssrLoadModule("/src/model/ownership.ts");
  const ownership = new Ownership();
  const open = new Map([["stream-0", null]]);
  for (let each = 0; each < 3000; each += 1) {
    const stream = { stream_id: `stream-${each}`, owner: "alice" };
    ownership.heed(said("stream/open", GATEWAY, { payload: { stream, owner: "alice" } }), each);
    ownership.tidy(open);
  }
  const known = Array.from({ length: 3000 }, (_, each) => each).filter((each) => ownership.of(`stream-${each}`));
  assert.equal(known.length, 501);
  assert.deepEqual(known.slice(0, 2), [0, 2500], "what is open, and what ended last");
}

async function keepsLittleOfEnds() {
  const { Proposals } = await vite.ssrLoadModule("/src/model/proposals.ts");
  const proposals = new Proposals();
  const big = "x".repeat(10_000);
  for (let position = 1; position <= 10_000; position += 1) {
    const end = { proposal: { position, digest: "" }, payload: { reason: `first ${big}`, big } };
    proposals.heed(said("mcp/reject", "carol", end), position);
  }
  proposals.heed(said("mcp/withdraw", "mallory", { correlation_id: ["wish"] }), 10_001);
  const kept = [...proposals.ends.keys()];
  assert.deepEqual([kept.length, kept[0], kept.at(-1)], [2000, 8001, 10_000], "the newest, and only what is stamped");
  assert.ok(!JSON.stringify([...proposals.ends.values()]).includes(big));
  const stamp = { position: 10_000, digest: "", expires_at: "2030-01-01T00:00:00Z" };
  proposals.heed(said("mcp/proposal", "bob", { id: "wish", proposal: stamp, payload: { method: "tools/list" } }), 0);
  const [wish] = proposals.decided();
  assert.deepEqual([wish.state, wish.by, wish.reason.slice(0, 6)], ["rejected", "carol", "first "]);
}

try {
  for (const check of [cutsOut, forgetsStreams, keepsLittleOfEnds]) await check();
} finally {
  await vite.close();
}
