// The journal's HTTP door: what was before this page was opened, and the refusals of others soon after they happened.
//
// Always in pages: a response that never ends would hold one of the six connections that a browser has for all tabs.

import { sourceOf, sourcesOf } from "../model/exact";
import { Refused, type Door } from "./http";

export interface JournalRecord {
  position: number;
  time: string;
  event: string;
  participant: string | null;
  kind: string | null;
  envelope_id: string | null;
  stream_id: string | null;
  reason: string | null;
  size: number | null;
  payload?: unknown;
  withheld?: boolean;
}

export interface Page {
  first: number | null;
  last: number | null;
  records: JournalRecord[];
  next: number;
}

/** Given each record, and its text: of an envelope the envelope's. */
export type Take = (record: JournalRecord, text: string) => void;

const LIMIT = 2000;
const EVERY = 2000;
const LONGEST_WAIT = 60_000;
/** Of what happened while nobody looked, so many records are read. */
const MOST_BEHIND = 50_000;

export class Journal {
  private readonly door: Door;
  private readonly space: string;
  private readonly signal: AbortSignal;

  constructor(door: Door, space: string, signal: AbortSignal) {
    this.door = door;
    this.space = space;
    this.signal = signal;
  }

  /** Records from one position up to and with another, without frames. Answers from where on; 0: nothing was before. */
  async read(from: number, to: number, take: Take): Promise<number> {
    let at = from;
    let first: number | null = null;
    while (at <= to && !this.signal.aborted) {
      const page = await this.page(at, (record, text) => {
        if (record.position <= to) take(record, text);
      });
      first ??= page.first;
      if (page.next <= at) break;
      at = page.next;
    }
    return first !== null && first >= from ? 0 : from;
  }

  /** Records from a position on, soon after they are written, while the page is seen; until the signal says so. */
  async follow(from: number, take: Take, wasRead: () => void): Promise<void> {
    let at = from;
    let wait = EVERY;
    for (;;) {
      await this.rest(wait);
      if (this.signal.aborted) return;
      try {
        const { next, last } = await this.page(at, take);
        const end = last ?? next;
        at = Math.max(next, end - MOST_BEHIND);
        wait = end - at < LIMIT ? EVERY : 0;
        wasRead();
      } catch (problem) {
        if (this.signal.aborted || keepsNone(problem)) return;
        wait = Math.min(LONGEST_WAIT, Math.max(EVERY, wait) * 2);
      }
    }
  }

  private async page(from: number, take: Take): Promise<Page> {
    const path = `spaces/${encodeURIComponent(this.space)}/journal?control=1&limit=${LIMIT}&from=${from}`;
    const text = await (await this.door.fetch(path, { signal: this.signal })).text();
    const page = JSON.parse(text) as Page;
    const sources = sourcesOf(text, "records");
    page.records.forEach((each, index) => take(each, textOf(each, sources[index]!)));
    return page;
  }

  /** So long, or until the page is shown again; while it is hidden for as long as it is. */
  private rest(milliseconds: number): Promise<void> {
    return new Promise((resolve) => {
      const look = (): void => {
        if (document.visibilityState !== "visible" && !this.signal.aborted) return;
        clearTimeout(timer);
        document.removeEventListener("visibilitychange", look);
        this.signal.removeEventListener("abort", look);
        resolve();
      };
      const timer = setTimeout(look, milliseconds);
      document.addEventListener("visibilitychange", look);
      this.signal.addEventListener("abort", look);
      if (this.signal.aborted) look();
    });
  }
}

function textOf(record: JournalRecord, source: string): string {
  return (record.event === "envelope" && record.payload ? sourceOf(source, "payload") : undefined) ?? source;
}

export function keepsNone(problem: unknown): boolean {
  return problem instanceof Refused && problem.status === 404;
}
