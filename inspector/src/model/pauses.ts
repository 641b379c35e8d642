// Who is paused, from when until when: whatever order it is learnt in, what was said last counts.

import type { Envelope } from "./fold";

interface Pause {
  since: number;
  until: number;
}

export class Pauses {
  private readonly known = new Map<string, Pause>();

  heed(envelope: Envelope, time: number): void {
    const seconds = envelope.payload["timeout_seconds"];
    const until = typeof seconds === "number" ? time + seconds * 1000 : Infinity;
    for (const id of Array.isArray(envelope.to) ? envelope.to : []) {
      if (envelope.kind === "participant/pause") this.put(id, time, until);
      if (envelope.kind === "participant/resume") this.end(id, time);
    }
  }

  /** Resumed, or removed: who comes back after that is not paused. */
  end(id: string, time: number): void {
    this.put(id, time, time);
  }

  /** What was before all there is. */
  absorb(older: Pauses): void {
    for (const [id, { since, until }] of older.known) this.put(id, since, until);
  }

  private put(id: string, since: number, until: number): void {
    const known = this.known.get(id);
    if (!known || known.since <= since) this.known.set(id, { since, until });
  }

  has(id: string, now: number): boolean {
    return (this.known.get(id)?.until ?? 0) > now;
  }

  /** When the next pause ends by itself. */
  next(now: number): number | null {
    let next = Infinity;
    for (const { until } of this.known.values()) if (until > now && until < next) next = until;
    return next === Infinity ? null : next;
  }
}
