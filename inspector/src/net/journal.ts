// Client of the journal's HTTP API: reads the events from before this page was opened, and the rejections of others.
//
// It requests pages. A response without an end would occupy one of the six connections that a browser opens to a host.

import { sourceOf, sourcesOf } from "../model/exact";
import { ApiError, type GatewayApi } from "./http";

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

/** Receives each record and its text; for an envelope, the text of the envelope. */
export type RecordHandler = (record: JournalRecord, text: string) => void;

const LIMIT = 2000;
const INTERVAL = 2000;
const LONGEST_WAIT = 60_000;
/** The maximum number of records that are read after the page was hidden. */
const MAX_BEHIND = 50_000;

export class Journal {
  private readonly api: GatewayApi;
  private readonly space: string;
  private readonly signal: AbortSignal;

  constructor(api: GatewayApi, space: string, signal: AbortSignal) {
    this.api = api;
    this.space = space;
    this.signal = signal;
  }

  /** Read the records `from` to `to`, both included, without frames. Returns the first position; 0 if nothing is earlier. */
  async read(from: number, to: number, onRecord: RecordHandler): Promise<number> {
    let at = from;
    let first: number | null = null;
    while (at <= to && !this.signal.aborted) {
      const page = await this.page(at, (record, text) => {
        if (record.position <= to) onRecord(record, text);
      });
      first ??= page.first;
      if (page.next <= at) break;
      at = page.next;
    }
    return first !== null && first >= from ? 0 : from;
  }

  /** Read records from a position on, as they are written, while the page is visible, until the signal aborts. */
  async follow(from: number, onRecord: RecordHandler, onSuccess: () => void): Promise<void> {
    let at = from;
    let wait = INTERVAL;
    for (;;) {
      await this.wait(wait);
      if (this.signal.aborted) return;
      try {
        const { next, last } = await this.page(at, onRecord);
        const end = last ?? next;
        at = Math.max(next, end - MAX_BEHIND);
        wait = end - at < LIMIT ? INTERVAL : 0;
        onSuccess();
      } catch (problem) {
        if (this.signal.aborted || hasNoJournal(problem)) return;
        wait = Math.min(LONGEST_WAIT, Math.max(INTERVAL, wait) * 2);
      }
    }
  }

  private async page(from: number, onRecord: RecordHandler): Promise<Page> {
    const path = `spaces/${encodeURIComponent(this.space)}/journal?control=1&limit=${LIMIT}&from=${from}`;
    const text = await (await this.api.fetch(path, { signal: this.signal })).text();
    const page = JSON.parse(text) as Page;
    const sources = sourcesOf(text, "records");
    page.records.forEach((record, index) => onRecord(record, textOf(record, sources[index]!)));
    return page;
  }

  /** Wait for a duration, or until the page becomes visible. While the page is hidden, wait until it is visible. */
  private wait(milliseconds: number): Promise<void> {
    return new Promise((resolve) => {
      const proceed = (): void => {
        if (document.visibilityState !== "visible" && !this.signal.aborted) return;
        clearTimeout(timer);
        document.removeEventListener("visibilitychange", proceed);
        this.signal.removeEventListener("abort", proceed);
        resolve();
      };
      const timer = setTimeout(proceed, milliseconds);
      document.addEventListener("visibilitychange", proceed);
      this.signal.addEventListener("abort", proceed);
      if (this.signal.aborted) proceed();
    });
  }
}

function textOf(record: JournalRecord, source: string): string {
  return (record.event === "envelope" && record.payload ? sourceOf(source, "payload") : undefined) ?? source;
}

export function hasNoJournal(problem: unknown): boolean {
  return problem instanceof ApiError && problem.status === 404;
}
