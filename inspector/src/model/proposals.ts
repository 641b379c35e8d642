// Proposals, and what became of each: fulfilled by an `mcp/request`, rejected, or taken back by whoever made it.

import type { Envelope } from "./fold";

export type State = "waiting" | "approved" | "rejected" | "withdrawn";

export interface Proposal {
  envelope: Envelope;
  /** As it was written, numbers too: what is shown and what is sent if it is approved are read from here. */
  text: string;
  time: number;
  state: State;
  by: string | null;
  reason: string | null;
}

/** What is needed of an envelope that decides a proposal which is not known yet. */
interface End {
  state: State;
  from: string;
  reason: string | null;
}

const MOST = 500;
const STATES: ReadonlyMap<string, State> = new Map([
  ["mcp/request", "approved"],
  ["mcp/reject", "rejected"],
  ["mcp/withdraw", "withdrawn"],
]);

export class Proposals {
  private known = new Map<string, Proposal>();
  private readonly ends = new Map<string, End[]>();

  heed(envelope: Envelope, text: string, time: number): boolean {
    if (envelope.kind === "mcp/proposal") {
      this.known.set(envelope.id, { envelope, text, time, state: "waiting", by: null, reason: null });
      this.settle(envelope.id);
      this.forget();
      return true;
    }
    const state = STATES.get(envelope.kind);
    if (!state || !Array.isArray(envelope.correlation_id)) return false;
    const reason = envelope.payload["reason"];
    const end: End = { state, from: envelope.from, reason: typeof reason === "string" ? reason : null };
    for (const cause of envelope.correlation_id) this.note(cause, end);
    return true;
  }

  /** What was before all there is. */
  absorb(older: Proposals): void {
    this.known = new Map([...older.known, ...this.known]);
    for (const [cause, ends] of older.ends) for (const end of ends) this.note(cause, end);
    // History comes later than what happens now.
    for (const id of older.known.keys()) this.settle(id);
    this.forget();
  }

  private note(cause: string, end: End): void {
    const ends = this.ends.get(cause) ?? [];
    if (ends.some((each) => each.state === end.state && each.from === end.from)) return;
    this.ends.set(cause, [...ends, end]);
    if (this.settle(cause)) return;
    if (this.ends.size > MOST * 4) this.ends.delete(this.ends.keys().next().value as string);
  }

  /** What is known of its end becomes its end, if it is here. */
  private settle(id: string): boolean {
    const proposal = this.known.get(id);
    if (!proposal) return false;
    for (const { state, from, reason } of this.ends.get(id) ?? []) {
      if (proposal.state !== "waiting" || (state === "withdrawn" && from !== proposal.envelope.from)) continue;
      Object.assign(proposal, { state, by: from, reason });
    }
    this.ends.delete(id);
    return true;
  }

  /** Let go of the oldest, of those that wait last. */
  private forget(): void {
    while (this.known.size > MOST) {
      const done = [...this.known].find(([, each]) => each.state !== "waiting")?.[0] ?? this.known.keys().next().value;
      this.known.delete(done as string);
    }
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
