// The outcomes of the proposals that this page has seen. Only an envelope with the gateway's stamp ends a proposal.
//
// The open proposals are part of the space's state (`fold.ts`). A client that does not receive this state uses the
// proposals seen here instead; such a client cannot fulfil a proposal.

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

const MAX_ENDED = 500;
const MAX_TITLE = 256;
const MAX_REASON = 4096;
const MAX_ID = 256;
const STATES: ReadonlyMap<string, State> = new Map([
  ["mcp/request", "approved"],
  ["mcp/response", "approved"],
  ["mcp/reject", "rejected"],
  ["mcp/withdraw", "withdrawn"],
]);
const OUTCOMES: ReadonlySet<unknown> = new Set<State>(["expired", "dropped", "kicked", "left"]);

/** The tool that the proposal calls; null if it is not a tool call. */
export function toolIn(payload: { [key: string]: unknown }): string | null {
  const { method, params } = payload;
  if (method !== "tools/call" || params === null || typeof params !== "object") return null;
  const name = Object.hasOwn(params, "name") ? (params as { name: unknown }).name : null;
  return typeof name === "string" ? name : null;
}

/** The payload that the approver sends: the fields that the digest covers, and the fields that JSON-RPC requires. */
export function sentOf(payload: JsonObject): JsonObject {
  const sent: JsonObject = {};
  for (const name of ["method", "params"]) if (Object.hasOwn(payload, name)) sent[name] = payload[name]!;
  if (payload.jsonrpc === "2.0") sent.jsonrpc = payload.jsonrpc;
  const id: unknown = payload.id;
  if (id instanceof Exact || typeof id === "number" || (typeof id === "string" && id.length <= MAX_ID)) sent.id = payload.id!;
  return sent;
}

export class Proposals {
  private proposals = new Map<number, Proposal>();
  private readonly ends = new Map<number, End>();

  update(envelope: Envelope, time: number): void {
    const entry = proposalIn(envelope);
    if (entry) {
      const title = (toolIn(envelope.payload) ?? entry.method).slice(0, MAX_TITLE);
      this.proposals.set(entry.position, { entry, title, state: "waiting", time, by: null, reason: null });
      this.settle(entry.position);
      this.deleteOldest();
      return;
    }
    const position = endedBy(envelope);
    if (position === undefined) return;
    const { outcome, reason } = envelope.payload;
    const state = STATES.get(envelope.kind) ?? (OUTCOMES.has(outcome) ? (outcome as State) : "expired");
    const by = STATES.has(envelope.kind) ? envelope.from : null;
    this.ends.set(position, { state, time, by, reason: typeof reason === "string" ? reason.slice(0, MAX_REASON) : null });
    if (!this.settle(position) && this.ends.size > MAX_ENDED * 4) this.ends.delete(this.ends.keys().next().value as number);
  }

  /** Add the proposals of an earlier part of the journal. */
  addEarlier(older: Proposals): void {
    this.proposals = new Map([...older.proposals, ...this.proposals]);
    for (const [position, end] of older.ends) if (!this.ends.has(position)) this.ends.set(position, end);
    for (const position of this.proposals.keys()) this.settle(position);
    this.deleteOldest();
  }

  private settle(position: number): boolean {
    const proposal = this.proposals.get(position);
    const end = this.ends.get(position);
    if (!proposal || !end) return false;
    if (proposal.state === "waiting") this.proposals.set(position, { ...proposal, ...end });
    this.ends.delete(position);
    return true;
  }

  /** Delete the oldest ended proposals. Open proposals are retained, up to the limit of a space. */
  private deleteOldest(): void {
    let ended = [...this.proposals.values()].filter((proposal) => proposal.state !== "waiting").length;
    for (const [position, proposal] of this.proposals) {
      if (this.proposals.size <= MAX_ENDED * 2 && ended <= MAX_ENDED) return;
      if (proposal.state === "waiting" && ended > 0) continue;
      this.proposals.delete(position);
      if (proposal.state !== "waiting") ended -= 1;
    }
  }

  /** Ended proposals, the latest first. */
  decided(): Proposal[] {
    return [...this.proposals.values()].filter((proposal) => proposal.state !== "waiting").sort((one, two) => two.time - one.time);
  }

  /** Proposals that have neither ended nor expired, as far as this page has seen. */
  waiting(now: number): OpenProposal[] {
    const waiting = [...this.proposals.values()].filter((proposal) => proposal.state === "waiting" && Date.parse(proposal.entry.expires_at) > now);
    return waiting.map((proposal) => proposal.entry).sort((one, two) => one.position - two.position);
  }
}
