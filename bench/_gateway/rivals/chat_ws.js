// Node's `ws` as a chat gateway in its plainest form: read, check, stamp, write, one send a client.
// With a folder as second argument it also logs as the gateway does: each envelope received, each recipient's, and each
// decision, a line of JSON each, through streams that gather what they write.
import { randomUUID } from "node:crypto";
import { createWriteStream } from "node:fs";
import { WebSocketServer } from "ws";

const CAPABILITIES = [{ kind: "mcp/*" }, { kind: "stream/request" }, { kind: "chat" }];
const server = new WebSocketServer({ host: "127.0.0.1", port: Number(process.argv[2]) });
const folder = process.argv[3];
const history = folder && createWriteStream(`${folder}/envelope-history.jsonl`, { flags: "a" });
const decisions = folder && createWriteStream(`${folder}/capability-decisions.jsonl`, { flags: "a" });
const names = new Map();
let joined = 0;

function line(event, envelope, participant, direction) {
  const timestamp = new Date().toISOString();
  const rest = { participant, space_id: "lab", direction, transport: "websocket", metadata: {} };
  history.write(JSON.stringify({ timestamp, event, id: envelope.id, envelope, ...rest }) + "\n");
}

function decided(envelope, participant) {
  const timestamp = new Date().toISOString();
  const asked = { timestamp, event: "capability_check", envelope_id: envelope.id, participant, space_id: "lab" };
  const answer = { result: "allowed", required_capability: envelope.kind, matched_capability: CAPABILITIES[2] };
  const held = { matched_source: "configured", granted_capabilities: CAPABILITIES, metadata: {} };
  decisions.write(JSON.stringify({ ...asked, ...answer, ...held }) + "\n");
}

function covers(pattern, kind) {
  if (pattern === "*" || pattern === kind) return true;
  return pattern.endsWith("/*") && kind.startsWith(pattern.slice(0, -1));
}

function refused(envelope) {
  if (typeof envelope.kind !== "string") return "invalid_envelope";
  if (envelope.kind === "chat" && !envelope.payload?.text) return "invalid_envelope";
  return CAPABILITIES.some((each) => covers(each.kind, envelope.kind)) ? null : "capability_violation";
}

server.on("connection", (socket) => {
  const from = `p${joined++}`;
  names.set(socket, from);
  socket.on("close", () => names.delete(socket));
  socket.on("message", (data) => {
    const envelope = JSON.parse(data);
    const error = refused(envelope);
    if (error !== null) {
      socket.send(JSON.stringify({ protocol: "mew/v0.4", kind: "system/error", to: [from], payload: { error } }));
      return;
    }
    envelope.protocol = "mew/v0.4";
    envelope.id ??= randomUUID();
    envelope.ts ??= new Date().toISOString();
    envelope.from = from;
    const text = JSON.stringify(envelope);
    if (folder) {
      line("received", envelope, from, "inbound");
      decided(envelope, from);
    }
    for (const client of server.clients) {
      client.send(text);
      if (folder) line("delivered", envelope, names.get(client), "outbound");
    }
  });
});
