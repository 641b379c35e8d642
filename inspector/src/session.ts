// One stay in a space: what came over the socket and from the journal, folded into what the views show.
//
// Arrivals change numbers and lists at once and mark what changed; views are told on the next animation frame, once,
// however much arrived meanwhile. The token lives in this object and nowhere else.

import { Activity } from "./model/activity";
import { Books } from "./model/books";
import { parseExact, sourceOf, write } from "./model/exact";
import { apply, applyFrame, emptyView, GATEWAY, referenced } from "./model/fold";
import type { Envelope, Json, JsonObject, OpenProposal, StreamEntry, View } from "./model/fold";
import { sizeOf, split } from "./model/frames";
import { fromEnvelope, type Ledger } from "./model/ledger";
import type { Ownership } from "./model/ownership";
import type { Proposals } from "./model/proposals";
import { fromRecord, isRefusal, Recall } from "./model/recall";
import { Door, type Draft, type Whoami } from "./net/http";
import { Journal, keepsNone, type JournalRecord } from "./net/journal";
import { Socket, type Ear, type Phase } from "./net/socket";

export type Topic = "space" | "ledger" | "proposals" | "phase" | "history";

export interface Absent {
  time: number;
  why: string;
}

export interface Past {
  state: "none yet" | "loading" | "loaded" | "no journal" | "failed";
  /** From which position on the past was read; 0: all there is. */
  from: number;
  why: string;
}

const DEPTH = 50_000;
const MOST_ENDED = 200;
const FIRST_RETRY = 4000;
const LONGEST_RETRY = 120_000;
const DAY = 86_400_000;

export class Session implements Ear {
  readonly who: Whoami;
  readonly door: Door;
  view: View = emptyView();
  activity = new Activity();
  phaseNow: Phase = "connecting";
  phaseWhy = "";
  past: Past = { state: "none yet", from: 0, why: "" };
  readonly absent = new Map<string, Absent>();
  readonly ended = new Map<string, { entry: StreamEntry; time: number; why: string }>();
  private books = new Books();
  /** After a break: what is gathered anew, until the journal has told what was missed. */
  private aside: Books | null = null;
  private readonly socket: Socket;
  private readonly listeners = new Map<Topic, Set<() => void>>();
  private readonly dirty = new Set<Topic>();
  private scheduled = false;
  private fresh = true;
  private offset = 0;
  private stay = new AbortController();
  private journal: Journal | null = null;
  /** Which records are being read, or could not be. */
  private range: [from: number, to: number] = [0, -1];
  private retryWait = FIRST_RETRY;
  /** Infinity while it is being read. */
  private retryAt = 0;
  private pauseTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(who: Whoami, token: string, space: string | null) {
    this.who = who;
    this.door = new Door(token, space);
    this.socket = new Socket(token, space, this);
  }

  /** Whether whoever signed in may do anything at all. */
  get acts(): boolean {
    return !this.who.observer;
  }

  /** Now, by the gateway's clock. */
  now(): number {
    return Date.now() + this.offset;
  }

  get ledger(): Ledger {
    return this.books.ledger;
  }

  get ownership(): Ownership {
    return this.books.ownership;
  }

  get proposals(): Proposals {
    return this.books.proposals;
  }

  /** The open proposals, the first first: those of the space's state, or where one is not told it, those that were seen. */
  openProposals(): OpenProposal[] {
    return this.view.proposals ? [...this.view.proposals.values()] : this.proposals.waiting(this.now());
  }

  /** Of whom it is known that they are paused. */
  readonly paused = { has: (id: string): boolean => this.books.pauses.has(id, this.now()) };

  /** Send it in the name of whoever signed in; numbers as they were written. */
  send(draft: Draft): Promise<JsonObject> {
    return this.door.send(this.view.you.id, draft);
  }

  leave(): void {
    this.stay.abort();
    clearTimeout(this.pauseTimer);
    this.socket.close();
    this.listeners.clear();
  }

  // Telling the views

  listen(topic: Topic, listener: () => void): () => void {
    let known = this.listeners.get(topic);
    if (!known) this.listeners.set(topic, (known = new Set()));
    known.add(listener);
    return () => known.delete(listener);
  }

  private mark(topic: Topic): void {
    this.dirty.add(topic);
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      const changed = [...this.dirty];
      this.dirty.clear();
      for (const each of changed) this.listeners.get(each)?.forEach((listener) => listener());
    });
  }

  // The socket

  phase(phase: Phase, why: string): void {
    this.phaseNow = phase;
    this.phaseWhy = why;
    if (phase !== "live") {
      this.fresh = true;
      this.stay.abort();
    }
    this.mark("phase");
  }

  message(data: string | ArrayBuffer): void {
    const frame = split(data);
    if (frame) {
      const size = sizeOf(frame.body);
      applyFrame(this.view, frame.streamId);
      this.arrived(frame.streamId, (flow, time, number) => flow.arrive(time, number, frame.body, size), size);
      return;
    }
    const text = typeof data === "string" ? data : new TextDecoder().decode(data);
    const envelope = JSON.parse(text) as Envelope;
    envelope.payload ??= {};
    if (envelope.from === GATEWAY) tellExactly(envelope, text);
    if (envelope.kind === "stream/data" && envelope.from !== GATEWAY) this.dataCame(envelope, text);
    else this.envelopeCame(envelope, text);
  }

  private arrived(id: string, tell: (flow: ReturnType<Activity["of"]>, time: number, number: number) => void, size: number): void {
    const time = this.now();
    this.activity.total.count(time, size);
    tell(this.activity.of(id), time, this.view.streams.get(id)?.stream.frames ?? 0);
  }

  private dataCame(envelope: Envelope, text: string): void {
    apply(this.view, envelope);
    const id = referenced(envelope);
    if (id === null) return;
    const body = sourceOf(text, "payload", "content") ?? "null";
    const size = sizeOf(body);
    const formatId = envelope.payload["format_id"];
    const sent = { writer: envelope.from, sequence: Number(envelope.payload["sequence"]) };
    const more = typeof formatId === "string" ? { ...sent, formatId } : sent;
    this.arrived(id, (flow, time, number) => flow.arrive(time, number, body, size, more), size);
  }

  private envelopeCame(envelope: Envelope, text: string): void {
    const ours = envelope.from === GATEWAY;
    if (ours && envelope.kind === "system/welcome") this.offset = Date.parse(envelope.ts) - Date.now() || 0;
    const time = this.now();
    const gone = this.endingOf(envelope);
    apply(this.view, envelope);
    if (gone) this.remember(gone, envelope, time);
    if (ours && envelope.kind === "system/welcome") this.welcomed(time);
    else if (ours && envelope.kind === "system/presence") this.presence(envelope, time);
    else if (ours && envelope.kind === "stream/gap") this.gap(envelope, time);
    const event = fromEnvelope(envelope, ours ? withoutToken(envelope, text) : text, time);
    for (const each of this.shelf()) each.heed(envelope, event);
    if (envelope.kind.startsWith("participant/")) this.awaitPauses();
    if (envelope.kind.startsWith("mcp/") || ours) this.mark("proposals");
    this.mark("ledger");
    if (ours || envelope.kind.startsWith("stream/") || envelope.kind.startsWith("participant/")) this.mark("space");
  }

  /** Where everything that comes now is written. */
  private shelf(): Books[] {
    return this.aside ? [this.books, this.aside] : [this.books];
  }

  /** The stream that this envelope ends. */
  private endingOf(envelope: Envelope): StreamEntry | undefined {
    if (!/^stream\/(close|complete|error)$/.test(envelope.kind)) return undefined;
    const id = referenced(envelope);
    return id === null ? undefined : this.view.streams.get(id);
  }

  private remember(entry: StreamEntry, envelope: Envelope, time: number): void {
    if (this.view.streams.has(entry.stream_id)) return;
    const why = ["reason", "message", "code"].map((name) => envelope.payload[name]).find((each) => typeof each === "string");
    this.ended.set(entry.stream_id, { entry, time, why: [envelope.kind.slice(7), why].filter(Boolean).join(" · ") });
    if (this.ended.size > MOST_ENDED) this.ended.delete(this.ended.keys().next().value as string);
    this.tidy();
  }

  private tidy(): void {
    this.activity.tidy(this.view.streams, this.ended);
    for (const each of this.shelf()) each.ownership.tidy(this.view.streams);
  }

  private welcomed(time: number): void {
    if (!this.fresh) return;
    this.fresh = false;
    this.socket.welcomed();
    // What is known stays until the journal has told it anew: there may be none.
    this.aside = this.past.state === "none yet" ? null : new Books();
    this.activity.wasAway();
    for (const each of this.shelf()) {
      for (const entry of this.view.streams.values()) each.ownership.found(entry, time);
    }
    this.tidy();
    for (const id of this.view.participants.keys()) this.absent.delete(id);
    this.stay.abort();
    this.stay = new AbortController();
    const journal = (this.journal = new Journal(this.door, this.who.space, this.stay.signal));
    const { position } = this.view;
    this.retryWait = FIRST_RETRY;
    void this.loadPast(Math.max(0, position - DEPTH + 1), position);
    void journal.follow(position + 1, (record, text) => this.refusal(record, text), () => this.retry());
  }

  private presence(envelope: Envelope, time: number): void {
    const about = (envelope.payload["participant"] as { id?: string } | undefined)?.id;
    if (about === undefined) return;
    const event = envelope.payload["event"];
    const reason = envelope.payload["reason"];
    if (event === "join") this.absent.delete(about);
    if (event === "leave") this.absent.set(about, { time, why: typeof reason === "string" ? reason : "left" });
    if (event === "leave" && reason === "kicked") for (const each of this.shelf()) each.pauses.end(about, time);
    if (event === "invited") this.absent.set(about, { time, why: "invited" });
  }

  private gap(envelope: Envelope, time: number): void {
    const { stream_id, from, to, dropped } = envelope.payload as { stream_id: string; from: number; to: number; dropped: number };
    this.activity.of(stream_id).lose(time, from, to, dropped);
  }

  /** Tell the views when the next pause ends by itself. */
  private awaitPauses(): void {
    clearTimeout(this.pauseTimer);
    const next = this.books.pauses.next(this.now());
    if (next === null) return;
    const again = (): void => {
      this.mark("space");
      this.awaitPauses();
    };
    this.pauseTimer = setTimeout(again, Math.min(DAY, next - this.now() + 1));
  }

  // The journal

  /** What was before what is here already; or what could not be read, once more. */
  loadEarlier(): void {
    const { state, from } = this.past;
    if (state === "failed" && this.retryAt < Infinity) void this.loadPast(...this.range);
    else if (state === "loaded" && from > 0) void this.loadPast(Math.max(0, from - 1 - DEPTH * 4), from - 1);
  }

  /** The journal can be read; perhaps also what could not be. */
  private retry(): void {
    if (this.past.state !== "failed" || Date.now() < this.retryAt) return;
    void this.loadPast(...this.range, true);
  }

  private async loadPast(from: number, to: number, quietly = false): Promise<void> {
    const { journal } = this;
    const { signal } = this.stay;
    if (!journal || signal.aborted) return;
    const books = this.aside ?? this.books;
    const found = new Recall(books.ledger.room());
    this.range = [from, to];
    this.retryAt = Infinity;
    if (!quietly) this.past = { state: "loading", from: to + 1, why: "" };
    this.mark("history");
    try {
      const first = await journal.read(from, to, (record, text) => found.take(record, text));
      if (signal.aborted) return;
      this.past = { state: "loaded", from: first, why: "" };
      this.recalled(books, found);
    } catch (problem) {
      if (signal.aborted) return;
      this.unread(problem, to);
    }
    this.awaitPauses();
    for (const topic of ["history", "ledger", "proposals", "space"] as const) this.mark(topic);
  }

  private recalled(books: Books, found: Recall): void {
    books.absorb(found);
    this.books = books;
    this.aside = null;
    this.tidy();
    for (const [id, left] of found.left) {
      const known = this.absent.get(id);
      if (this.view.participants.has(id) || id === this.view.you.id || (known && known.time >= left.time)) continue;
      this.absent.set(id, left);
    }
  }

  /** What was known before a break stays. */
  private unread(problem: unknown, to: number): void {
    if (keepsNone(problem)) {
      this.past = { state: "no journal", from: to + 1, why: "" };
      // Pauses may have ended meanwhile, and nobody tells.
      if (this.aside) this.books.pauses = this.aside.pauses;
      this.aside = null;
      return;
    }
    this.past = { state: "failed", from: to + 1, why: String(problem) };
    this.retryAt = Date.now() + this.retryWait;
    this.retryWait = Math.min(LONGEST_RETRY, this.retryWait * 2);
  }

  /** Refusals reach only those they are about; the journal tells all. */
  private refusal(record: JournalRecord, text: string): void {
    if (!isRefusal(record)) return;
    for (const each of this.shelf()) each.ledger.add(fromRecord(record, text, Date.parse(record.time)));
    this.mark("ledger");
  }
}

/** What participants may do is granted and revoked again from here: with its numbers as they were written. */
function tellExactly(envelope: Envelope, text: string): void {
  const names = { "system/welcome": ["you", "participants"], "system/presence": ["participant"] }[envelope.kind] ?? [];
  for (const name of names) envelope.payload[name] = parseExact(sourceOf(text, "payload", name) ?? "null") as Json;
}

/** A token is shown once, to whoever invited, and kept nowhere. */
function withoutToken(envelope: Envelope, text: string): string {
  if (envelope.kind !== "space/invite-ack" || envelope.payload["token"] === undefined) return text;
  const { payload, ...rest } = parseExact(text) as Envelope;
  return write({ ...rest, payload: { ...payload, token: "…" } });
}
