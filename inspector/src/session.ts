// A session in a space: combines the messages of the socket and the records of the journal into the data of the views.
//
// A message updates the data immediately and marks the changed topics. Views are notified once per animation frame. Only
// this object holds the token.

import { Activity } from "./model/activity";
import { SpaceHistory } from "./model/history";
import { parseExact, sourceOf, write } from "./model/exact";
import { apply, applyFrame, emptyView, GATEWAY, referenced } from "./model/fold";
import type { Envelope, Json, JsonObject, OpenProposal, StreamEntry, View } from "./model/fold";
import { sizeOf, split } from "./model/frames";
import { fromEnvelope, type Ledger } from "./model/ledger";
import type { Ownership } from "./model/ownership";
import type { Proposals } from "./model/proposals";
import { fromRecord, isRefusal, JournalExcerpt } from "./model/excerpt";
import { GatewayApi, type Draft, type Whoami } from "./net/http";
import { Journal, hasNoJournal, type JournalRecord } from "./net/journal";
import { Socket, type SocketListener, type Phase } from "./net/socket";

export type Topic = "space" | "ledger" | "proposals" | "phase" | "history";

export interface Absent {
  time: number;
  why: string;
}

export interface Past {
  state: "none yet" | "loading" | "loaded" | "no journal" | "failed";
  /** The first position that was read; 0 if the whole journal was read. */
  from: number;
  why: string;
}

const PAST_RECORDS = 50_000;
const MAX_ENDED = 200;
const FIRST_RETRY = 4000;
const LONGEST_RETRY = 120_000;
const DAY = 86_400_000;

export class Session implements SocketListener {
  readonly who: Whoami;
  readonly api: GatewayApi;
  view: View = emptyView();
  activity = new Activity();
  phaseNow: Phase = "connecting";
  phaseWhy = "";
  past: Past = { state: "none yet", from: 0, why: "" };
  readonly absent = new Map<string, Absent>();
  readonly ended = new Map<string, { entry: StreamEntry; time: number; why: string }>();
  private history = new SpaceHistory();
  /** After a lost connection: the history that is rebuilt, until the missed records are read from the journal. */
  private rebuilt: SpaceHistory | null = null;
  private readonly socket: Socket;
  private readonly listeners = new Map<Topic, Set<() => void>>();
  private readonly dirty = new Set<Topic>();
  private scheduled = false;
  private fresh = true;
  private offset = 0;
  /** Aborts the requests of the current connection. */
  private connection = new AbortController();
  private journal: Journal | null = null;
  /** The records that are being read, or that could not be read. */
  private range: [from: number, to: number] = [0, -1];
  private retryWait = FIRST_RETRY;
  /** Infinity while the journal is being read. */
  private retryAt = 0;
  private pauseTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(who: Whoami, token: string, space: string | null) {
    this.who = who;
    this.api = new GatewayApi(token, space);
    this.socket = new Socket(token, space, this);
  }

  /** Whether the token is a participant's, so that the page can send. */
  get canAct(): boolean {
    return !this.who.observer;
  }

  /** The current time of the gateway's clock. */
  now(): number {
    return Date.now() + this.offset;
  }

  get ledger(): Ledger {
    return this.history.ledger;
  }

  get ownership(): Ownership {
    return this.history.ownership;
  }

  get proposals(): Proposals {
    return this.history.proposals;
  }

  /** The open proposals, oldest first: those of the space's state, or, without access to it, those that were seen. */
  openProposals(): OpenProposal[] {
    return this.view.proposals ? [...this.view.proposals.values()] : this.proposals.waiting(this.now());
  }

  /** The participants that are known to be paused. */
  readonly paused = { has: (id: string): boolean => this.history.pauses.has(id, this.now()) };

  /** Send a message as the signed-in participant, with its numbers unchanged. */
  send(draft: Draft): Promise<JsonObject> {
    return this.api.send(this.view.you.id, draft);
  }

  leave(): void {
    this.connection.abort();
    clearTimeout(this.pauseTimer);
    this.socket.close();
    this.listeners.clear();
  }

  // Notifying the views

  listen(topic: Topic, listener: () => void): () => void {
    let listeners = this.listeners.get(topic);
    if (!listeners) this.listeners.set(topic, (listeners = new Set()));
    listeners.add(listener);
    return () => listeners.delete(listener);
  }

  private mark(topic: Topic): void {
    this.dirty.add(topic);
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      const changed = [...this.dirty];
      this.dirty.clear();
      for (const topic of changed) this.listeners.get(topic)?.forEach((listener) => listener());
    });
  }

  // The socket

  phase(phase: Phase, why: string): void {
    this.phaseNow = phase;
    this.phaseWhy = why;
    if (phase !== "live") {
      this.fresh = true;
      this.connection.abort();
    }
    this.mark("phase");
  }

  message(data: string | ArrayBuffer): void {
    const frame = split(data);
    if (frame) {
      const size = sizeOf(frame.body);
      applyFrame(this.view, frame.streamId);
      this.countArrival(frame.streamId, (flow, time, number) => flow.arrive(time, number, frame.body, size), size);
      return;
    }
    const text = typeof data === "string" ? data : new TextDecoder().decode(data);
    const envelope = JSON.parse(text) as Envelope;
    envelope.payload ??= {};
    if (envelope.from === GATEWAY) restoreNumbers(envelope, text);
    if (envelope.kind === "stream/data" && envelope.from !== GATEWAY) this.handleData(envelope, text);
    else this.handleEnvelope(envelope, text);
  }

  private countArrival(id: string, record: (flow: ReturnType<Activity["of"]>, time: number, number: number) => void, size: number): void {
    const time = this.now();
    this.activity.total.count(time, size);
    record(this.activity.of(id), time, this.view.streams.get(id)?.stream.frames ?? 0);
  }

  private handleData(envelope: Envelope, text: string): void {
    apply(this.view, envelope);
    const id = referenced(envelope);
    if (id === null) return;
    const body = sourceOf(text, "payload", "content") ?? "null";
    const size = sizeOf(body);
    const formatId = envelope.payload["format_id"];
    const numbered = { writer: envelope.from, sequence: Number(envelope.payload["sequence"]) };
    const header = typeof formatId === "string" ? { ...numbered, formatId } : numbered;
    this.countArrival(id, (flow, time, number) => flow.arrive(time, number, body, size, header), size);
  }

  private handleEnvelope(envelope: Envelope, text: string): void {
    const byGateway = envelope.from === GATEWAY;
    if (byGateway && envelope.kind === "system/welcome") this.offset = Date.parse(envelope.ts) - Date.now() || 0;
    const time = this.now();
    const ending = this.streamEndedBy(envelope);
    apply(this.view, envelope);
    if (ending) this.addEnded(ending, envelope, time);
    if (byGateway && envelope.kind === "system/welcome") this.handleWelcome(time);
    else if (byGateway && envelope.kind === "system/presence") this.handlePresence(envelope, time);
    else if (byGateway && envelope.kind === "stream/gap") this.handleGap(envelope, time);
    const event = fromEnvelope(envelope, byGateway ? withoutToken(envelope, text) : text, time);
    for (const history of this.histories()) history.update(envelope, event);
    if (envelope.kind.startsWith("participant/")) this.schedulePauseEnd();
    if (envelope.kind.startsWith("mcp/") || byGateway) this.mark("proposals");
    this.mark("ledger");
    if (byGateway || envelope.kind.startsWith("stream/") || envelope.kind.startsWith("participant/")) this.mark("space");
  }

  /** The histories that new messages are added to. */
  private histories(): SpaceHistory[] {
    return this.rebuilt ? [this.history, this.rebuilt] : [this.history];
  }

  /** The stream that an envelope ends. */
  private streamEndedBy(envelope: Envelope): StreamEntry | undefined {
    if (!/^stream\/(close|complete|error)$/.test(envelope.kind)) return undefined;
    const id = referenced(envelope);
    return id === null ? undefined : this.view.streams.get(id);
  }

  private addEnded(entry: StreamEntry, envelope: Envelope, time: number): void {
    if (this.view.streams.has(entry.stream_id)) return;
    const why = ["reason", "message", "code"].map((name) => envelope.payload[name]).find((text) => typeof text === "string");
    this.ended.set(entry.stream_id, { entry, time, why: [envelope.kind.slice(7), why].filter(Boolean).join(" · ") });
    if (this.ended.size > MAX_ENDED) this.ended.delete(this.ended.keys().next().value as string);
    this.removeEnded();
  }

  private removeEnded(): void {
    this.activity.removeEnded(this.view.streams, this.ended);
    for (const history of this.histories()) history.ownership.removeEnded(this.view.streams);
  }

  private handleWelcome(time: number): void {
    if (!this.fresh) return;
    this.fresh = false;
    this.socket.welcomed();
    // The old history stays until the journal is read again, because the space may have no journal.
    this.rebuilt = this.past.state === "none yet" ? null : new SpaceHistory();
    this.activity.reconnected();
    for (const history of this.histories()) {
      for (const entry of this.view.streams.values()) history.ownership.addEntry(entry, time);
    }
    this.removeEnded();
    for (const id of this.view.participants.keys()) this.absent.delete(id);
    this.connection.abort();
    this.connection = new AbortController();
    const journal = (this.journal = new Journal(this.api, this.who.space, this.connection.signal));
    const { position } = this.view;
    this.retryWait = FIRST_RETRY;
    void this.loadPast(Math.max(0, position - PAST_RECORDS + 1), position);
    void journal.follow(position + 1, (record, text) => this.addRejection(record, text), () => this.retry());
  }

  private handlePresence(envelope: Envelope, time: number): void {
    const participant = (envelope.payload["participant"] as { id?: string } | undefined)?.id;
    if (participant === undefined) return;
    const event = envelope.payload["event"];
    const reason = envelope.payload["reason"];
    if (event === "join") this.absent.delete(participant);
    if (event === "leave") this.absent.set(participant, { time, why: typeof reason === "string" ? reason : "left" });
    if (event === "leave" && reason === "kicked") for (const history of this.histories()) history.pauses.end(participant, time);
    if (event === "invited") this.absent.set(participant, { time, why: "invited" });
  }

  private handleGap(envelope: Envelope, time: number): void {
    const { stream_id, from, to, dropped } = envelope.payload as { stream_id: string; from: number; to: number; dropped: number };
    this.activity.of(stream_id).addLoss(time, from, to, dropped);
  }

  /** Notify the views when the next pause expires. */
  private schedulePauseEnd(): void {
    clearTimeout(this.pauseTimer);
    const next = this.history.pauses.next(this.now());
    if (next === null) return;
    const expire = (): void => {
      this.mark("space");
      this.schedulePauseEnd();
    };
    this.pauseTimer = setTimeout(expire, Math.min(DAY, next - this.now() + 1));
  }

  // The journal

  /** Read earlier records of the journal; after a failure, retry the failed range. */
  loadEarlier(): void {
    const { state, from } = this.past;
    if (state === "failed" && this.retryAt < Infinity) void this.loadPast(...this.range);
    else if (state === "loaded" && from > 0) void this.loadPast(Math.max(0, from - 1 - PAST_RECORDS * 4), from - 1);
  }

  /** After a successful request, retry the range that could not be read. */
  private retry(): void {
    if (this.past.state !== "failed" || Date.now() < this.retryAt) return;
    void this.loadPast(...this.range, true);
  }

  private async loadPast(from: number, to: number, quietly = false): Promise<void> {
    const { journal } = this;
    const { signal } = this.connection;
    if (!journal || signal.aborted) return;
    const history = this.rebuilt ?? this.history;
    const excerpt = new JournalExcerpt(history.ledger.room());
    this.range = [from, to];
    this.retryAt = Infinity;
    if (!quietly) this.past = { state: "loading", from: to + 1, why: "" };
    this.mark("history");
    try {
      const first = await journal.read(from, to, (record, text) => excerpt.add(record, text));
      if (signal.aborted) return;
      this.past = { state: "loaded", from: first, why: "" };
      this.addExcerpt(history, excerpt);
    } catch (problem) {
      if (signal.aborted) return;
      this.readFailed(problem, to);
    }
    this.schedulePauseEnd();
    for (const topic of ["history", "ledger", "proposals", "space"] as const) this.mark(topic);
  }

  private addExcerpt(history: SpaceHistory, excerpt: JournalExcerpt): void {
    history.addEarlier(excerpt);
    this.history = history;
    this.rebuilt = null;
    this.removeEnded();
    for (const [id, left] of excerpt.left) {
      const absent = this.absent.get(id);
      if (this.view.participants.has(id) || id === this.view.you.id || (absent && absent.time >= left.time)) continue;
      this.absent.set(id, left);
    }
  }

  /** The history from before a lost connection stays. */
  private readFailed(problem: unknown, to: number): void {
    if (hasNoJournal(problem)) {
      this.past = { state: "no journal", from: to + 1, why: "" };
      // Pauses can have ended while the page was not connected, and no record reports it.
      if (this.rebuilt) this.history.pauses = this.rebuilt.pauses;
      this.rebuilt = null;
      return;
    }
    this.past = { state: "failed", from: to + 1, why: String(problem) };
    this.retryAt = Date.now() + this.retryWait;
    this.retryWait = Math.min(LONGEST_RETRY, this.retryWait * 2);
  }

  /** A rejection is sent only to its participant; the journal has the rejections of all. */
  private addRejection(record: JournalRecord, text: string): void {
    if (!isRefusal(record)) return;
    for (const history of this.histories()) history.ledger.add(fromRecord(record, text, Date.parse(record.time)));
    this.mark("ledger");
  }
}

/** Parse the capabilities with their numbers unchanged, because the page grants and revokes them again. */
function restoreNumbers(envelope: Envelope, text: string): void {
  const names = { "system/welcome": ["you", "participants"], "system/presence": ["participant"] }[envelope.kind] ?? [];
  for (const name of names) envelope.payload[name] = parseExact(sourceOf(text, "payload", name) ?? "null") as Json;
}

/** The token of an invitation is shown once, to the inviter, and never stored. */
function withoutToken(envelope: Envelope, text: string): string {
  if (envelope.kind !== "space/invite-ack" || envelope.payload["token"] === undefined) return text;
  const { payload, ...rest } = parseExact(text) as Envelope;
  return write({ ...rest, payload: { ...payload, token: "…" } });
}
