// What has flowed through each stream: counts by the second, the last bodies, gaps.
//
// Arrivals only write numbers here. Nothing is decoded and nothing drawn before somebody looks.

import type { Body } from "./frames";

export const SECONDS = 120;
const KEPT_FRAMES = 64;
const KEPT_BYTES = 128 * 1024;
const WATCHED_FRAMES = 1000;
const WATCHED_BYTES = 8 * 1024 * 1024;
const MOST_GAPS = 200;

export interface Kept {
  number: number;
  time: number;
  body: Body;
  size: number;
  writer?: string;
  sequence?: number;
  formatId?: string;
}

export interface Gap {
  time: number;
  /** Who left something out, or null where this page did not get it. */
  writer: string | null;
  /** It was sent while this page was not connected: `from` and `to` are sequences of a writer. */
  away?: true;
  from: number;
  to: number;
  missing: number;
}

/** Counts, in all and by the second. */
export class Meter {
  frames = 0;
  bytes = 0;
  lastTime = 0;
  private readonly frameBuckets = new Float64Array(SECONDS);
  private readonly byteBuckets = new Float64Array(SECONDS);
  private second = 0;

  count(time: number, size: number): void {
    this.frames += 1;
    this.bytes += size;
    this.lastTime = time;
    this.turnTo(Math.floor(time / 1000));
    const bucket = this.second % SECONDS;
    this.frameBuckets[bucket]! += 1;
    this.byteBuckets[bucket]! += size;
  }

  private turnTo(second: number): void {
    if (second <= this.second) return;
    const from = Math.max(this.second + 1, second - SECONDS + 1);
    for (let each = from; each <= second; each += 1) {
      this.frameBuckets[each % SECONDS] = 0;
      this.byteBuckets[each % SECONDS] = 0;
    }
    this.second = second;
  }

  /** Counts of the last whole seconds before `now`, oldest first. */
  series(now: number, seconds: number, what: "frames" | "bytes"): number[] {
    const end = Math.floor(now / 1000);
    this.turnTo(end);
    const buckets = what === "frames" ? this.frameBuckets : this.byteBuckets;
    const found = new Array<number>(seconds);
    for (let index = 0; index < seconds; index += 1) {
      const second = end - seconds + index;
      found[index] = second < 0 || end - second >= SECONDS ? 0 : buckets[second % SECONDS]!;
    }
    return found;
  }

  /** A second, over the last three whole ones. */
  rate(now: number, what: "frames" | "bytes"): number {
    const last = this.series(now, 3, what);
    return (last[0]! + last[1]! + last[2]!) / 3;
  }
}

export interface Sent {
  writer: string;
  sequence: number;
  formatId?: string;
}

/** One stream's. */
export class Flow extends Meter {
  missing = 0;
  kept: Kept[] = [];
  gaps: Gap[] = [];
  /** Somebody looks at it: more is kept. */
  watched = false;
  private keptBytes = 0;
  private sequences = new Map<string, number>();
  /** As they were before this page was away. */
  private before = new Map<string, number>();

  arrive(time: number, number: number, body: Body, size: number, sent?: Sent): void {
    this.count(time, size);
    this.keep(sent ? { number, time, body, size, ...sent } : { number, time, body, size });
    if (sent) this.follow(time, sent.writer, sent.sequence);
  }

  /** The gateway tells what this page did not get. */
  lose(time: number, from: number, to: number, missing: number): void {
    this.missing += missing;
    this.note({ time, writer: null, from, to, missing });
  }

  /** This page was not connected: what it did not see meanwhile nobody left out. */
  wasAway(): void {
    this.before = new Map([...this.before, ...this.sequences]);
    this.sequences = new Map();
  }

  private follow(time: number, writer: string, sequence: number): void {
    const seen = this.sequences.get(writer);
    const last = seen ?? this.before.get(writer);
    this.sequences.set(writer, sequence);
    this.before.delete(writer);
    if (last === undefined || sequence <= last + 1) return;
    const gap = { time, from: last + 1, to: sequence - 1, missing: sequence - last - 1 };
    this.missing += gap.missing;
    this.note(seen === undefined ? { ...gap, writer: null, away: true } : { ...gap, writer });
  }

  private note(gap: Gap): void {
    this.gaps.push(gap);
    if (this.gaps.length > MOST_GAPS) this.gaps.splice(0, this.gaps.length - MOST_GAPS);
  }

  private keep(frame: Kept): void {
    this.kept.push(frame);
    this.keptBytes += frame.size;
    const most = this.watched ? WATCHED_FRAMES : KEPT_FRAMES;
    const bytes = this.watched ? WATCHED_BYTES : KEPT_BYTES;
    // In lumps: taking one off the front for each arrival would move all the others each time.
    if (this.kept.length < most * 1.5 && this.keptBytes <= bytes) return;
    let drop = Math.max(0, this.kept.length - most);
    let dropped = 0;
    for (let index = 0; index < drop; index += 1) dropped += this.kept[index]!.size;
    while (this.keptBytes - dropped > bytes && drop < this.kept.length - 1) dropped += this.kept[drop++]!.size;
    this.kept.splice(0, drop);
    this.keptBytes -= dropped;
  }
}

export class Activity {
  readonly flows = new Map<string, Flow>();
  readonly total = new Meter();

  of(streamId: string): Flow {
    let flow = this.flows.get(streamId);
    if (!flow) this.flows.set(streamId, (flow = new Flow()));
    return flow;
  }

  /** This page was not connected for a while. */
  wasAway(): void {
    for (const flow of this.flows.values()) flow.wasAway();
  }

  /** Let go of streams that ended long ago. */
  tidy(open: ReadonlyMap<string, unknown>, kept: ReadonlyMap<string, unknown>): void {
    for (const id of this.flows.keys()) if (!open.has(id) && !kept.has(id)) this.flows.delete(id);
  }
}
