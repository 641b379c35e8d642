// Client of the gateway's HTTP API. The token is sent in a header and never in a URL.

import { write } from "../model/exact";
import type { JsonObject } from "../model/fold";

/** An error response of the gateway: status, code and message. */
export class ApiError extends Error {
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
  /** Numbers may be `Exact`; they are sent unchanged. */
  payload?: JsonObject;
  to?: string[];
  correlation_id?: string[];
  /** The proposal that it concerns. The gateway rejects the message if the proposal has changed. */
  proposal?: { position: number; digest: string };
}

export function address(path: string): URL {
  return new URL(path, document.baseURI);
}

export class GatewayApi {
  private readonly token: string;
  private readonly space: string | null;
  constructor(token: string, space: string | null) {
    this.token = token;
    this.space = space;
  }

  /** The participant of the token, and whether that participant is connected. */
  async whoami(): Promise<Whoami> {
    const answer = await this.request<{ space: string; you: { id: string; observer: boolean }; participants: { id: string }[] }>("participants");
    return { space: answer.space, ...answer.you, present: !answer.you.observer && answer.participants.some((participant) => participant.id === answer.you.id) };
  }

  /** Dry run: whether the gateway would accept this message of this participant. */
  explain(participant: string, envelope: Draft | JsonObject): Promise<Explanation> {
    return this.request<Explanation>(`participants/${encodeURIComponent(participant)}/explain`, envelope);
  }

  /** Send a message as this participant. Returns the gateway's answer. */
  send(participant: string, envelope: Draft): Promise<JsonObject> {
    return this.request<JsonObject>(`participants/${encodeURIComponent(participant)}/messages`, envelope);
  }

  /** An open proposal with its payload, as JSON text with its numbers unchanged. */
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
    const error = (await answer.json().catch(() => ({}))) as { error?: string; message?: string };
    throw new ApiError(answer.status, error.error ?? "unknown", error.message ?? `the gateway returned HTTP ${answer.status}`);
  }

  private async request<T>(path: string, body?: object): Promise<T> {
    const answer = await this.fetch(
      path,
      body ? { method: "POST", body: write(body), headers: { "Content-Type": "application/json" } } : {},
    );
    return (await answer.json()) as T;
  }
}
