// The owners and writers of each stream over time. Changes can be added in any order.

import { GATEWAY, referenced, type Envelope, type StreamEntry } from "./fold";

export interface Moment {
  time: number;
  owner: string;
  writers: string[];
  why: string;
}

export interface Span {
  from: number;
  to: number;
  who: string;
}

export interface OwnershipTimeline {
  /** When the stream was opened. */
  opened: number;
  /** Whether the opening is known; otherwise earlier changes are not loaded. */
  complete: boolean;
  ended: number | null;
  moments: Moment[];
}

const MAX_MOMENTS = 2000;
const MAX_ENDED = 500;

export class Ownership {
  private timelines = new Map<string, OwnershipTimeline>();

  /** Add the owner and the writers of a stream's entry, at the time of the entry. */
  addEntry(entry: StreamEntry, time: number): void {
    const timeline = this.timeline(entry.stream_id, Date.parse(entry.created) || time);
    this.put(timeline, { time, owner: entry.owner, writers: entry.authorized_writers, why: "when this page connected" });
  }

  /** Add an envelope that changes the owner, the writers or the end of a stream. */
  update(envelope: Envelope, time: number): void {
    if (envelope.from !== GATEWAY && !ENDINGS.has(envelope.kind)) return;
    const id = referenced(envelope);
    if (id === null) return;
    if (envelope.kind === "stream/open" || envelope.kind === "stream/ready") {
      const payload = envelope.payload as unknown as StreamEntry & { stream: { owner?: string; authorized_writers?: string[] } };
      const owner = payload.stream.owner ?? payload.owner;
      const timeline = this.timeline(id, time);
      timeline.opened = Math.min(timeline.opened, time);
      timeline.complete = true;
      this.put(timeline, { time, owner, writers: payload.stream.authorized_writers ?? payload.authorized_writers ?? [owner], why: "opened" });
      return;
    }
    const timeline = this.timelines.get(id) ?? (envelope.from === GATEWAY && CHANGES.has(envelope.kind) ? this.timeline(id, time) : undefined);
    if (!timeline) return;
    if (ENDINGS.has(envelope.kind)) timeline.ended = time;
    else if (CHANGES.has(envelope.kind)) this.change(timeline, envelope, time);
  }

  private change(timeline: OwnershipTimeline, envelope: Envelope, time: number): void {
    const payload = envelope.payload as { authorized_writers?: string[]; new_owner?: string; participant_id?: string; reason?: string };
    const writers = payload.authorized_writers ?? [];
    // The owner is always the first in the list.
    const owner = payload.new_owner ?? writers[0] ?? "";
    const change = envelope.kind.slice("stream/".length).replaceAll("-", " ");
    const participant = payload.new_owner ?? payload.participant_id ?? "";
    this.put(timeline, { time, owner, writers, why: [change, participant, payload.reason].filter(Boolean).join(" · ") });
  }

  private timeline(id: string, opened: number): OwnershipTimeline {
    let timeline = this.timelines.get(id);
    if (!timeline) this.timelines.set(id, (timeline = { opened, complete: false, ended: null, moments: [] }));
    return timeline;
  }

  private put(timeline: OwnershipTimeline, moment: Moment): void {
    const moments = timeline.moments;
    let index = moments.length;
    while (index > 0 && moments[index - 1]!.time > moment.time) index -= 1;
    moments.splice(index, 0, moment);
    if (moments.length > MAX_MOMENTS) moments.splice(0, moments.length - MAX_MOMENTS);
  }

  /** Add the changes of an earlier part of the journal. */
  addEarlier(older: Ownership): void {
    const newer = this.timelines;
    this.timelines = older.timelines;
    for (const [id, timeline] of newer) {
      const earlier = this.timelines.get(id);
      if (!earlier) {
        this.timelines.set(id, timeline);
        continue;
      }
      earlier.opened = Math.min(earlier.opened, timeline.opened);
      earlier.complete ||= timeline.complete;
      earlier.ended = timeline.ended ?? earlier.ended;
      for (const moment of timeline.moments) this.put(earlier, moment);
    }
  }

  /** Delete the oldest ended streams. */
  removeEnded(open: ReadonlyMap<string, unknown>): void {
    let excess = this.timelines.size - open.size - MAX_ENDED;
    for (const id of this.timelines.keys()) {
      if (excess <= 0) return;
      if (!open.has(id) && this.timelines.delete(id)) excess -= 1;
    }
  }

  of(id: string): OwnershipTimeline | undefined {
    return this.timelines.get(id);
  }
}

const CHANGES = new Set(["stream/write-granted", "stream/write-revoked", "stream/ownership-transferred"]);
const ENDINGS = new Set(["stream/close", "stream/complete", "stream/error"]);

/** The owners in order, and for each writer the times when it could write, up to `now`. */
export function spans(timeline: OwnershipTimeline, now: number): { owners: Span[]; writers: Map<string, Span[]> } {
  const end = timeline.ended ?? now;
  const owners: Span[] = [];
  const writers = new Map<string, Span[]>();
  timeline.moments.forEach((moment, index) => {
    const to = Math.max(moment.time, timeline.moments[index + 1]?.time ?? end);
    extend(owners, { from: moment.time, to, who: moment.owner });
    for (const who of moment.writers) {
      let periods = writers.get(who);
      if (!periods) writers.set(who, (periods = []));
      extend(periods, { from: moment.time, to, who });
    }
  });
  return { owners, writers };
}

function extend(spans: Span[], next: Span): void {
  const last = spans[spans.length - 1];
  if (last && last.who === next.who && last.to === next.from) last.to = next.to;
  else spans.push(next);
}
