// One stay in a space: what came over the socket and from the journal, folded into what the views show.
//
// Arrivals change numbers and lists at once and mark what changed; views are told on the next animation frame, once,
// however much arrived meanwhile. The token lives in this object and nowhere else.

import { Activity } from "./model/activity";
import { apply, applyFrame, emptyView, GATEWAY, referenced, type Envelope, type StreamEntry, type View } from "./model/fold";
import { sizeOf, split } from "./model/frames";
import { familyOf, fromEnvelope, Ledger, type Event } from "./model/ledger";
import { Ownership } from "./model/ownership";
import { Proposals } from "./model/proposals";
import { Door, type Whoami } from "./net/http";
import { follow, keepsNone, read, type JournalRecord } from "./net/journal";
import { Socket, type Ear, type Phase } from "./net/socket";

export type Topic = "space" | "ledger" | "proposals" | "phase" | "history";

export interface Absent {
  time: number;
  why: string;
}

export interface Past {
  state: "none yet" | "loading" | "loaded" | "no journal" | "failed";
  /** From which position on the past is here; 0: all of it. */
  from: number;
  why: string;
}

const DEPTH = 50_000;
const MOST_ENDED = 200;
const FOLLOW_AGAIN = 3000;

export class Session implements Ear {
  readonly who: Whoami;
  readonly door: Door;
  view: View = emptyView();
  activity = new Activity();
  ledger = new Ledger();
  ownership = new Ownership();
  proposals = new Proposals();
  phaseNow: Phase = "connecting";
  phaseWhy = "";
  past: Past = { state: "none yet", from: 0, why: "" };
  readonly absent = new Map<string, Absent>();
  readonly ended = new Map<string, { entry: StreamEntry; time: number; why: string }>();
  readonly paused = new Set<string>();
  /** Of whom it is known from what is said now whether they are paused. */
  private readonly steered = new Set<string>();
  private readonly socket: Socket;
  private readonly listeners = new Map<Topic, Set<() => void>>();
  private readonly dirty = new Set<Topic>();
  private scheduled = false;
  private fresh = true;
  private offset = 0;
  private following: AbortController | null = null;

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

  leave(): void {
    this.following?.abort();
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
      this.following?.abort();
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
    if (envelope.kind === "stream/data" && envelope.from !== GATEWAY) this.dataCame(envelope);
    else this.envelopeCame(envelope, text);
  }

  private arrived(id: string, tell: (flow: ReturnType<Activity["of"]>, time: number, number: number) => void, size: number): void {
    const time = this.now();
    this.activity.total.count(time, size);
    tell(this.activity.of(id), time, this.view.streams.get(id)?.stream.frames ?? 0);
  }

  private dataCame(envelope: Envelope): void {
    apply(this.view, envelope);
    const id = referenced(envelope);
    if (id === null) return;
    const body = JSON.stringify(envelope.payload["content"] ?? null);
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
    else if (envelope.kind.startsWith("participant/")) {
      envelope.to?.forEach((each) => this.steered.add(each));
      this.pausing(envelope, envelope.to ?? [], time);
    }
    this.ownership.heed(envelope, time);
    if (this.proposals.heed(envelope, text, time)) this.mark("proposals");
    this.ledger.add(fromEnvelope(envelope, ours ? withoutToken(envelope, text) : text, time));
    this.mark("ledger");
    if (ours || envelope.kind.startsWith("stream/") || envelope.kind.startsWith("participant/")) this.mark("space");
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
    this.activity.tidy(this.view.streams, this.ended);
  }

  private welcomed(time: number): void {
    if (!this.fresh) return;
    this.fresh = false;
    this.socket.welcomed();
    this.ledger = new Ledger();
    this.ownership = new Ownership();
    this.proposals = new Proposals();
    for (const entry of this.view.streams.values()) this.ownership.found(entry, time);
    for (const id of this.view.participants.keys()) this.absent.delete(id);
    this.following?.abort();
    this.following = new AbortController();
    void this.loadPast(this.view.position, Math.max(0, this.view.position - DEPTH + 1), this.following.signal);
    void this.followRefusals(this.view.position + 1, this.following.signal);
  }

  private presence(envelope: Envelope, time: number): void {
    const about = (envelope.payload["participant"] as { id?: string } | undefined)?.id;
    if (about === undefined) return;
    const event = envelope.payload["event"];
    const reason = envelope.payload["reason"];
    if (event === "join") this.absent.delete(about);
    if (event === "leave") this.absent.set(about, { time, why: typeof reason === "string" ? reason : "left" });
    if (event === "invited") this.absent.set(about, { time, why: "invited" });
  }

  private gap(envelope: Envelope, time: number): void {
    const { stream_id, from, to, dropped } = envelope.payload as { stream_id: string; from: number; to: number; dropped: number };
    this.activity.of(stream_id).lose(time, from, to, dropped);
  }

  private pausing(envelope: Envelope, whom: string[], time: number): void {
    for (const id of whom) {
      if (envelope.kind === "participant/resume") this.paused.delete(id);
      if (envelope.kind !== "participant/pause") continue;
      const seconds = envelope.payload["timeout_seconds"];
      const left = typeof seconds === "number" ? time + seconds * 1000 - this.now() : null;
      if (left !== null && left <= 0) continue;
      this.paused.add(id);
      if (left === null || left > 86_400_000) continue;
      setTimeout(() => {
        this.paused.delete(id);
        this.mark("space");
      }, left);
    }
  }

  // The journal

  /** What was before what is here already. */
  loadEarlier(): void {
    if (this.past.state !== "loaded" || this.past.from <= 0 || !this.following) return;
    const to = this.past.from - 1;
    void this.loadPast(to, Math.max(0, to - DEPTH * 4), this.following.signal);
  }

  private async loadPast(to: number, from: number, signal: AbortSignal): Promise<void> {
    this.past = { state: "loading", from: to + 1, why: "" };
    this.mark("history");
    const events: Omit<Event, "key">[] = [];
    try {
      const first = await read(
        this.door,
        this.who.space,
        from,
        to,
        (records, texts) => records.forEach((each, index) => this.recall(each, texts[index]!, events)),
        signal,
      );
      this.past = { state: "loaded", from: first, why: "" };
    } catch (problem) {
      if (signal.aborted) return;
      this.past = { state: keepsNone(problem) ? "no journal" : "failed", from: to + 1, why: String(problem) };
    }
    if (signal.aborted) return;
    this.ledger.prepend(events);
    for (const topic of ["history", "ledger", "proposals", "space"] as const) this.mark(topic);
  }

  private recall(record: JournalRecord, text: string, events: Omit<Event, "key">[]): void {
    const time = Date.parse(record.time);
    if (record.event === "envelope" && record.payload) {
      const envelope = record.payload as Envelope;
      envelope.payload ??= {};
      this.ownership.heed(envelope, time);
      this.proposals.heed(envelope, text, time);
      if (envelope.kind.startsWith("participant/")) {
        this.pausing(envelope, (envelope.to ?? []).filter((each) => !this.steered.has(each)), time);
      }
      events.push({ ...fromEnvelope(envelope, text, time), position: record.position });
    } else if (!QUIET.has(record.event)) events.push(fromRecord(record, text, time));
    if (record.event === "leave" && record.participant && !this.view.participants.has(record.participant)) {
      const known = this.absent.get(record.participant);
      if (record.participant !== this.view.you.id && (!known || known.time < time)) {
        this.absent.set(record.participant, { time, why: record.reason ?? "left" });
      }
    }
  }

  /** Refusals reach only those they are about; the journal tells all. */
  private async followRefusals(from: number, signal: AbortSignal): Promise<void> {
    let at = from;
    while (!signal.aborted) {
      try {
        await follow(
          this.door,
          this.who.space,
          at,
          (record) => {
            at = record.position + 1;
            // One's own comes as `system/error`, with its text.
            this.ledger.add(fromRecord(record, JSON.stringify(record), Date.parse(record.time)));
            this.mark("ledger");
          },
          signal,
        );
      } catch (problem) {
        if (signal.aborted || keepsNone(problem)) return;
      }
      await new Promise((resolve) => setTimeout(resolve, FOLLOW_AGAIN));
    }
  }
}

const QUIET = new Set(["welcome", "checkpoint", "frame", "consumed", "envelope"]);

function fromRecord(record: JournalRecord, text: string, time: number): Omit<Event, "key"> {
  const refused = record.event.endsWith("rejected");
  const kind = refused ? (record.kind ?? (record.event === "frame_rejected" ? "frame" : "message")) : record.event;
  return {
    time,
    lane: record.participant ?? GATEWAY,
    kind,
    family: refused ? familyOf(kind) : "system",
    refused,
    id: record.envelope_id,
    to: [],
    causes: [],
    streamId: record.stream_id,
    summary: [refused ? `refused: ${record.reason ?? "?"}` : record.reason, record.stream_id].filter(Boolean).join(" · "),
    text,
    position: record.position,
  };
}

/** A token is shown once, to whoever invited, and kept nowhere. */
function withoutToken(envelope: Envelope, text: string): string {
  if (envelope.kind !== "space/invite-ack" || envelope.payload["token"] === undefined) return text;
  return JSON.stringify({ ...envelope, payload: { ...envelope.payload, token: "…" } });
}
