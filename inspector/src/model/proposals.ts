// What became of proposals, as far as it was seen happen: the gateway's stamps decide, and nothing else ends one.
//
// Which proposals are open is state of the space (`fold.ts`). Those who are not told that state see here what they have
// read of it; they cannot fulfil a proposal.

import { Exact } from "./exact";
import { endedBy, proposalIn, type Envelope, type JsonObject, type OpenProposal } from "./fold";

export type State = "waiting" | "approved" | "rejected" | "withdrawn" | "expired" | "dropped" | "kicked" | "left";

export interface Proposal {
  entry: OpenProposal;
  title: string;
  state: State;
  time: number;
  by: string | null;
  reason: string | null;
}

type End = Pick<Proposal, "state" | "time" | "by" | "reason">;

const MOST = 500;
const MOST_TITLE = 256;
const MOST_REASON = 4096;
const MOST_ID = 256;
const STATES: ReadonlyMap<string, State> = new Map([
  ["mcp/request", "approved"],
  ["mcp/response", "approved"],
  ["mcp/reject", "rejected"],
  ["mcp/withdraw", "withdrawn"],
]);
const OUTCOMES: ReadonlySet<unknown> = new Set<State>(["expired", "dropped", "kicked", "left"]);

/** The tool that is to be called; null where that is not what is asked for. */
export function toolIn(payload: { [key: string]: unknown }): string | null {
  const { method, params } = payload;
  if (method !== "tools/call" || params === null || typeof params !== "object") return null;
  const name = Object.hasOwn(params, "name") ? (params as { name: unknown }).name : null;
  return typeof name === "string" ? name : null;
}

/** What is sent in the approver's name: what the digest covers, and what JSON-RPC asks for beside it. */
export function sentOf(payload: JsonObject): JsonObject {
  const sent: JsonObject = {};
  for (const name of ["method", "params"]) if (Object.hasOwn(payload, name)) sent[name] = payload[name]!;
  if (payload.jsonrpc === "2.0") sent.jsonrpc = payload.jsonrpc;
  const id: unknown = payload.id;
  if (id instanceof Exact || typeof id === "number" || (typeof id === "string" && id.length <= MOST_ID)) sent.id = payload.id!;
  return sent;
}

export class Proposals {
  private known = new Map<number, Proposal>();
  private readonly ends = new Map<number, End>();

  heed(envelope: Envelope, time: number): void {
    const entry = proposalIn(envelope);
    if (entry) {
      const title = (toolIn(envelope.payload) ?? entry.method).slice(0, MOST_TITLE);
      this.known.set(entry.position, { entry, title, state: "waiting", time, by: null, reason: null });
      this.settle(entry.position);
      this.forget();
      return;
    }
    const position = endedBy(envelope);
    if (position === undefined) return;
    const { outcome, reason } = envelope.payload;
    const state = STATES.get(envelope.kind) ?? (OUTCOMES.has(outcome) ? (outcome as State) : "expired");
    const by = STATES.has(envelope.kind) ? envelope.from : null;
    this.ends.set(position, { state, time, by, reason: typeof reason === "string" ? reason.slice(0, MOST_REASON) : null });
    if (!this.settle(position) && this.ends.size > MOST * 4) this.ends.delete(this.ends.keys().next().value as number);
  }

  /** What was before all there is. */
  absorb(older: Proposals): void {
    this.known = new Map([...older.known, ...this.known]);
    for (const [position, end] of older.ends) if (!this.ends.has(position)) this.ends.set(position, end);
    for (const position of this.known.keys()) this.settle(position);
    this.forget();
  }

  private settle(position: number): boolean {
    const proposal = this.known.get(position);
    const end = this.ends.get(position);
    if (!proposal || !end) return false;
    if (proposal.state === "waiting") this.known.set(position, { ...proposal, ...end });
    this.ends.delete(position);
    return true;
  }

  /** Let go of the oldest of those that ended; as many as a space may have open are kept. */
  private forget(): void {
    let ended = [...this.known.values()].filter((each) => each.state !== "waiting").length;
    for (const [position, each] of this.known) {
      if (this.known.size <= MOST * 2 && ended <= MOST) return;
      if (each.state === "waiting" && ended > 0) continue;
      this.known.delete(position);
      if (each.state !== "waiting") ended -= 1;
    }
  }

  /** The last that ended first. */
  decided(): Proposal[] {
    return [...this.known.values()].filter((each) => each.state !== "waiting").sort((one, two) => two.time - one.time);
  }

  /** Those of which no end was seen, and whose time has not come. */
  waiting(now: number): OpenProposal[] {
    const waiting = [...this.known.values()].filter((each) => each.state === "waiting" && Date.parse(each.entry.expires_at) > now);
    return waiting.map((each) => each.entry).sort((one, two) => one.position - two.position);
  }
}
