// Which participants are paused, and until when. Changes can be added in any order: the latest counts.

import type { Envelope } from "./fold";

interface Pause {
  since: number;
  until: number;
}

export class Pauses {
  private readonly pauses = new Map<string, Pause>();

  update(envelope: Envelope, time: number): void {
    const seconds = envelope.payload["timeout_seconds"];
    const until = typeof seconds === "number" ? time + seconds * 1000 : Infinity;
    for (const id of Array.isArray(envelope.to) ? envelope.to : []) {
      if (envelope.kind === "participant/pause") this.put(id, time, until);
      if (envelope.kind === "participant/resume") this.end(id, time);
    }
  }

  /** A participant was resumed or removed. If it returns later, it is not paused. */
  end(id: string, time: number): void {
    this.put(id, time, time);
  }

  /** Add the pauses of an earlier part of the journal. */
  addEarlier(older: Pauses): void {
    for (const [id, { since, until }] of older.pauses) this.put(id, since, until);
  }

  private put(id: string, since: number, until: number): void {
    const latest = this.pauses.get(id);
    if (!latest || latest.since <= since) this.pauses.set(id, { since, until });
  }

  has(id: string, now: number): boolean {
    return (this.pauses.get(id)?.until ?? 0) > now;
  }

  /** The time at which the next pause expires. */
  next(now: number): number | null {
    let next = Infinity;
    for (const { until } of this.pauses.values()) if (until > now && until < next) next = until;
    return next === Infinity ? null : next;
  }
}
