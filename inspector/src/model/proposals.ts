// Proposals, and what became of each: fulfilled by an `mcp/request`, rejected, or taken back by whoever made it.

import type { Envelope } from "./fold";

export type State = "waiting" | "approved" | "rejected" | "withdrawn";

export interface Proposal {
  envelope: Envelope;
  text: string;
  time: number;
  state: State;
  by: string | null;
  reason: string | null;
}

const MOST = 500;
const STATES: ReadonlyMap<string, State> = new Map([
  ["mcp/request", "approved"],
  ["mcp/reject", "rejected"],
  ["mcp/withdraw", "withdrawn"],
]);

export class Proposals {
  private readonly known = new Map<string, Proposal>();
  private readonly ends = new Map<string, Envelope[]>();

  heed(envelope: Envelope, text: string, time: number): boolean {
    if (envelope.kind === "mcp/proposal") {
      const made: Proposal = { envelope, text, time, state: "waiting", by: null, reason: null };
      this.known.set(envelope.id, made);
      // History comes later than what happens now.
      for (const end of this.ends.get(envelope.id) ?? []) settle(made, end);
      if (this.known.size > MOST) this.forget();
      return true;
    }
    if (!STATES.has(envelope.kind) || !Array.isArray(envelope.correlation_id)) return false;
    for (const cause of envelope.correlation_id) {
      const proposal = this.known.get(cause);
      if (proposal) settle(proposal, envelope);
      else {
        this.ends.set(cause, [...(this.ends.get(cause) ?? []), envelope]);
        if (this.ends.size > MOST * 4) this.ends.delete(this.ends.keys().next().value as string);
      }
    }
    return true;
  }

  /** Let go of the oldest, of those that wait last. */
  private forget(): void {
    const done = [...this.known].find(([, each]) => each.state !== "waiting")?.[0] ?? this.known.keys().next().value;
    if (done !== undefined) this.known.delete(done);
  }

  all(): Proposal[] {
    return [...this.known.values()].sort((one, two) => two.time - one.time);
  }

  waiting(): number {
    let count = 0;
    for (const each of this.known.values()) if (each.state === "waiting") count += 1;
    return count;
  }
}

function settle(proposal: Proposal, end: Envelope): void {
  const state = STATES.get(end.kind)!;
  if (proposal.state !== "waiting" || (state === "withdrawn" && end.from !== proposal.envelope.from)) return;
  proposal.state = state;
  proposal.by = end.from;
  const reason = end.payload?.["reason"];
  proposal.reason = typeof reason === "string" ? reason : null;
}
