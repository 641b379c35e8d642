// Traffic of each stream: counts per second, the most recent frames, gaps.
//
// An arrival only updates counters. Frames are decoded and drawn only when a view shows them.

import type { Body } from "./frames";

export const SECONDS = 120;
const RECENT_FRAMES = 64;
const RECENT_BYTES = 128 * 1024;
const WATCHED_FRAMES = 1000;
const WATCHED_BYTES = 8 * 1024 * 1024;
const MAX_GAPS = 200;

export interface RecentFrame {
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
  /** The writer that skipped sequence numbers; null if this page missed the frames. */
  writer: string | null;
  /** Sent while this page was not connected: `from` and `to` are sequence numbers of a writer. */
  away?: true;
  from: number;
  to: number;
  missing: number;
}

/** Counts, in total and per second. */
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
    this.advanceTo(Math.floor(time / 1000));
    const bucket = this.second % SECONDS;
    this.frameBuckets[bucket]! += 1;
    this.byteBuckets[bucket]! += size;
  }

  private advanceTo(second: number): void {
    if (second <= this.second) return;
    const from = Math.max(this.second + 1, second - SECONDS + 1);
    for (let bucket = from; bucket <= second; bucket += 1) {
      this.frameBuckets[bucket % SECONDS] = 0;
      this.byteBuckets[bucket % SECONDS] = 0;
    }
    this.second = second;
  }

  /** Counts of the last complete seconds before `now`, oldest first. */
  series(now: number, seconds: number, what: "frames" | "bytes"): number[] {
    const end = Math.floor(now / 1000);
    this.advanceTo(end);
    const buckets = what === "frames" ? this.frameBuckets : this.byteBuckets;
    const counts = new Array<number>(seconds);
    for (let index = 0; index < seconds; index += 1) {
      const second = end - seconds + index;
      counts[index] = second < 0 || end - second >= SECONDS ? 0 : buckets[second % SECONDS]!;
    }
    return counts;
  }

  /** The average per second over the last three complete seconds. */
  rate(now: number, what: "frames" | "bytes"): number {
    const last = this.series(now, 3, what);
    return (last[0]! + last[1]! + last[2]!) / 3;
  }
}

/** The sender's part of a `stream/data` envelope. */
export interface DataHeader {
  writer: string;
  sequence: number;
  formatId?: string;
}

/** The traffic of one stream. */
export class Flow extends Meter {
  missing = 0;
  recent: RecentFrame[] = [];
  gaps: Gap[] = [];
  /** A view shows this stream: more frames are retained. */
  watched = false;
  private recentBytes = 0;
  private sequences = new Map<string, number>();
  /** The last sequence numbers before a lost connection. */
  private sequencesBeforeBreak = new Map<string, number>();

  arrive(time: number, number: number, body: Body, size: number, header?: DataHeader): void {
    this.count(time, size);
    this.keep(header ? { number, time, body, size, ...header } : { number, time, body, size });
    if (header) this.checkSequence(time, header.writer, header.sequence);
  }

  /** The gateway reports frames that it could not deliver to this page. */
  addLoss(time: number, from: number, to: number, missing: number): void {
    this.missing += missing;
    this.addGap({ time, writer: null, from, to, missing });
  }

  /** After a lost connection: frames missed in the meantime are not gaps of the writer. */
  reconnected(): void {
    this.sequencesBeforeBreak = new Map([...this.sequencesBeforeBreak, ...this.sequences]);
    this.sequences = new Map();
  }

  private checkSequence(time: number, writer: string, sequence: number): void {
    const previous = this.sequences.get(writer);
    const last = previous ?? this.sequencesBeforeBreak.get(writer);
    this.sequences.set(writer, sequence);
    this.sequencesBeforeBreak.delete(writer);
    if (last === undefined || sequence <= last + 1) return;
    const gap = { time, from: last + 1, to: sequence - 1, missing: sequence - last - 1 };
    this.missing += gap.missing;
    this.addGap(previous === undefined ? { ...gap, writer: null, away: true } : { ...gap, writer });
  }

  private addGap(gap: Gap): void {
    this.gaps.push(gap);
    if (this.gaps.length > MAX_GAPS) this.gaps.splice(0, this.gaps.length - MAX_GAPS);
  }

  private keep(frame: RecentFrame): void {
    this.recent.push(frame);
    this.recentBytes += frame.size;
    const maxFrames = this.watched ? WATCHED_FRAMES : RECENT_FRAMES;
    const maxBytes = this.watched ? WATCHED_BYTES : RECENT_BYTES;
    // In batches: removing one frame per arrival would move all other frames each time.
    if (this.recent.length < maxFrames * 1.5 && this.recentBytes <= maxBytes) return;
    let drop = Math.max(0, this.recent.length - maxFrames);
    let dropped = 0;
    for (let index = 0; index < drop; index += 1) dropped += this.recent[index]!.size;
    while (this.recentBytes - dropped > maxBytes && drop < this.recent.length - 1) dropped += this.recent[drop++]!.size;
    this.recent.splice(0, drop);
    this.recentBytes -= dropped;
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

  /** After a lost connection. */
  reconnected(): void {
    for (const flow of this.flows.values()) flow.reconnected();
  }

  /** Delete the traffic of streams that are neither open nor listed as ended. */
  removeEnded(open: ReadonlyMap<string, unknown>, listed: ReadonlyMap<string, unknown>): void {
    for (const id of this.flows.keys()) if (!open.has(id) && !listed.has(id)) this.flows.delete(id);
  }
}
