// The gateway's HTTP door, asked with the token of whoever signed in. The token is a header, never a part of an address.

import { write } from "../model/exact";
import type { JsonObject } from "../model/fold";

/** What the gateway refused, in its own words. */
export class Refused extends Error {
  readonly status: number;
  readonly code: string;
  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export interface Whoami {
  space: string;
  id: string;
  observer: boolean;
  present: boolean;
}

export interface Explanation {
  allowed: boolean;
  kind: string | null;
  error: string | null;
  reason: string;
  capability: JsonObject | null;
  source: string | null;
  nearest: { capability: JsonObject; source: string; why: string } | null;
}

export interface Draft {
  kind: string;
  /** Numbers may be `Exact`; they are sent as they were written. */
  payload?: JsonObject;
  to?: string[];
  correlation_id?: string[];
  /** Which proposal it is about: what was seen is what is done, or nothing. */
  proposal?: { position: number; digest: string };
}

export function address(path: string): URL {
  return new URL(path, document.baseURI);
}

export class Door {
  private readonly token: string;
  private readonly space: string | null;
  constructor(token: string, space: string | null) {
    this.token = token;
    this.space = space;
  }

  /** Whose token it is, and whether somebody holds that participant's socket already. */
  async whoami(): Promise<Whoami> {
    const told = await this.ask<{ space: string; you: { id: string; observer: boolean }; participants: { id: string }[] }>("participants");
    return { space: told.space, ...told.you, present: !told.you.observer && told.participants.some((each) => each.id === told.you.id) };
  }

  /** What would come of it if this participant sent that. */
  explain(participant: string, envelope: Draft | JsonObject): Promise<Explanation> {
    return this.ask<Explanation>(`participants/${encodeURIComponent(participant)}/explain`, envelope);
  }

  /** Send it in this participant's name; the answer says what came of it. */
  send(participant: string, envelope: Draft): Promise<JsonObject> {
    return this.ask<JsonObject>(`participants/${encodeURIComponent(participant)}/messages`, envelope);
  }

  /** An open proposal with everything that its proposer sent, as it was written. */
  async proposal(space: string, position: number): Promise<string> {
    return (await this.fetch(`spaces/${encodeURIComponent(space)}/proposals/${position}`)).text();
  }

  async fetch(path: string, init: RequestInit = {}): Promise<Response> {
    const url = address(path);
    if (this.space !== null && !path.startsWith("spaces/")) url.searchParams.set("space", this.space);
    const headers = new Headers(init.headers);
    headers.set("Authorization", `Bearer ${this.token}`);
    const answer = await fetch(url, { ...init, headers, cache: "no-store", credentials: "omit", referrerPolicy: "no-referrer" });
    if (answer.ok) return answer;
    const told = (await answer.json().catch(() => ({}))) as { error?: string; message?: string };
    throw new Refused(answer.status, told.error ?? "unknown", told.message ?? `the gateway answered ${answer.status}`);
  }

  private async ask<T>(path: string, body?: object): Promise<T> {
    const answer = await this.fetch(
      path,
      body ? { method: "POST", body: write(body), headers: { "Content-Type": "application/json" } } : {},
    );
    return (await answer.json()) as T;
  }
}
