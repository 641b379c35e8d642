// The journal's HTTP door: what was before this page was opened, and the refusals of others as they happen.

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

const LIMIT = 2000;

/** Records from one position up to and with another, without frames; `take` is given each page. */
export async function read(
  door: Door,
  space: string,
  from: number,
  to: number,
  take: (records: JournalRecord[], texts: string[]) => void,
  signal: AbortSignal,
): Promise<number> {
  let at = from;
  let first = from;
  while (at <= to && !signal.aborted) {
    const path = `spaces/${encodeURIComponent(space)}/journal?control=1&limit=${LIMIT}&from=${at}`;
    const page = (await (await door.fetch(path, { signal })).json()) as Page;
    if (at === from && page.first !== null) first = Math.max(from, page.first);
    const wanted = page.records.filter((each) => each.position <= to);
    take(wanted, wanted.map((each) => JSON.stringify(each.payload ?? each)));
    if (page.next <= at) break;
    at = page.next;
  }
  return first;
}

/** Each record from a position on, as it is written; ends when the signal says so, or the gateway. */
export async function follow(
  door: Door,
  space: string,
  from: number,
  take: (record: JournalRecord) => void,
  signal: AbortSignal,
): Promise<void> {
  const path = `spaces/${encodeURIComponent(space)}/journal?control=1&from=${from}`;
  const answer = await door.fetch(path, { headers: { Accept: "text/event-stream" }, signal });
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let unread = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    unread += value;
    let end: number;
    while ((end = unread.indexOf("\n\n")) >= 0) {
      const event = unread.slice(0, end);
      unread = unread.slice(end + 2);
      if (!/^event: (rejected|frame_rejected)$/m.test(event)) continue;
      const line = event.split("\n").find((each) => each.startsWith("data: "));
      if (line) take(JSON.parse(line.slice("data: ".length)) as JournalRecord);
    }
  }
}

export function keepsNone(problem: unknown): boolean {
  return problem instanceof Refused && problem.status === 404;
}
