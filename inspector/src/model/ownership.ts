// Who owned a stream and who could write to it, over time: the changes, whichever order they are learnt in.

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

export interface Story {
  /** When the stream was opened. */
  began: number;
  /** Whether its first moment is known; else what was before is not loaded. */
  whole: boolean;
  ended: number | null;
  moments: Moment[];
}

const MOST_MOMENTS = 2000;
const MOST_ENDED = 500;

export class Ownership {
  private stories = new Map<string, Story>();

  /** What a stream's entry says, at the time it was said. */
  found(entry: StreamEntry, time: number): void {
    const story = this.story(entry.stream_id, Date.parse(entry.created) || time);
    this.put(story, { time, owner: entry.owner, writers: entry.authorized_writers, why: "when this page came" });
  }

  /** An envelope of the gateway's that changes something. */
  heed(envelope: Envelope, time: number): void {
    if (envelope.from !== GATEWAY && !ENDINGS.has(envelope.kind)) return;
    const id = referenced(envelope);
    if (id === null) return;
    if (envelope.kind === "stream/open" || envelope.kind === "stream/ready") {
      const payload = envelope.payload as unknown as StreamEntry & { stream: { owner?: string; authorized_writers?: string[] } };
      const owner = payload.stream.owner ?? payload.owner;
      const story = this.story(id, time);
      story.began = Math.min(story.began, time);
      story.whole = true;
      this.put(story, { time, owner, writers: payload.stream.authorized_writers ?? payload.authorized_writers ?? [owner], why: "opened" });
      return;
    }
    const story = this.stories.get(id) ?? (envelope.from === GATEWAY && CHANGES.has(envelope.kind) ? this.story(id, time) : undefined);
    if (!story) return;
    if (ENDINGS.has(envelope.kind)) story.ended = time;
    else if (CHANGES.has(envelope.kind)) this.change(story, envelope, time);
  }

  private change(story: Story, envelope: Envelope, time: number): void {
    const payload = envelope.payload as { authorized_writers?: string[]; new_owner?: string; participant_id?: string; reason?: string };
    const writers = payload.authorized_writers ?? [];
    // The owner always stands first in the list.
    const owner = payload.new_owner ?? writers[0] ?? "";
    const what = envelope.kind.slice("stream/".length).replaceAll("-", " ");
    const whom = payload.new_owner ?? payload.participant_id ?? "";
    this.put(story, { time, owner, writers, why: [what, whom, payload.reason].filter(Boolean).join(" · ") });
  }

  private story(id: string, began: number): Story {
    let story = this.stories.get(id);
    if (!story) this.stories.set(id, (story = { began, whole: false, ended: null, moments: [] }));
    return story;
  }

  private put(story: Story, moment: Moment): void {
    const moments = story.moments;
    let index = moments.length;
    while (index > 0 && moments[index - 1]!.time > moment.time) index -= 1;
    moments.splice(index, 0, moment);
    if (moments.length > MOST_MOMENTS) moments.splice(0, moments.length - MOST_MOMENTS);
  }

  /** What was before all there is. */
  absorb(older: Ownership): void {
    const newer = this.stories;
    this.stories = older.stories;
    for (const [id, story] of newer) {
      const known = this.stories.get(id);
      if (!known) {
        this.stories.set(id, story);
        continue;
      }
      known.began = Math.min(known.began, story.began);
      known.whole ||= story.whole;
      known.ended = story.ended ?? known.ended;
      for (const moment of story.moments) this.put(known, moment);
    }
  }

  /** Let go of streams that ended long ago: those that were learnt of first. */
  tidy(open: ReadonlyMap<string, unknown>): void {
    let over = this.stories.size - open.size - MOST_ENDED;
    for (const id of this.stories.keys()) {
      if (over <= 0) return;
      if (!open.has(id) && this.stories.delete(id)) over -= 1;
    }
  }

  of(id: string): Story | undefined {
    return this.stories.get(id);
  }
}

const CHANGES = new Set(["stream/write-granted", "stream/write-revoked", "stream/ownership-transferred"]);
const ENDINGS = new Set(["stream/close", "stream/complete", "stream/error"]);

/** Owners one after another, and for each writer the times it could write, up to `now`. */
export function spans(story: Story, now: number): { owners: Span[]; writers: Map<string, Span[]> } {
  const end = story.ended ?? now;
  const owners: Span[] = [];
  const writers = new Map<string, Span[]>();
  story.moments.forEach((moment, index) => {
    const to = Math.max(moment.time, story.moments[index + 1]?.time ?? end);
    extend(owners, { from: moment.time, to, who: moment.owner });
    for (const who of moment.writers) {
      let known = writers.get(who);
      if (!known) writers.set(who, (known = []));
      extend(known, { from: moment.time, to, who });
    }
  });
  return { owners, writers };
}

function extend(known: Span[], next: Span): void {
  const last = known[known.length - 1];
  if (last && last.who === next.who && last.to === next.from) last.to = next.to;
  else known.push(next);
}
