// The WebSocket connection: joins, passes messages on, and reconnects unless the gateway closed it permanently.

import { address } from "./http";

export type Phase = "connecting" | "live" | "waiting" | "over";

export interface SocketListener {
  message(data: string | ArrayBuffer): void;
  phase(phase: Phase, why: string): void;
}

const FINAL: ReadonlyMap<number, string> = new Map([
  [4401, "The gateway no longer accepts this token."],
  [4403, "You were removed from the space."],
  [4404, "The space no longer exists."],
  [4409, "Another connection took over: a client signed in with the token of the same participant."],
]);
const FIRST_WAIT = 500;
const LONGEST_WAIT = 15_000;

export class Socket {
  private socket: WebSocket | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private wait = FIRST_WAIT;
  private closed = false;
  private readonly token: string;
  private readonly space: string | null;
  private readonly listener: SocketListener;

  constructor(token: string, space: string | null, listener: SocketListener) {
    this.token = token;
    this.space = space;
    this.listener = listener;
    this.open();
  }

  private open(): void {
    this.listener.phase("connecting", "");
    const url = address("");
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    url.hash = "";
    const socket = (this.socket = new WebSocket(url));
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      const space = this.space === null ? {} : { space: this.space };
      socket.send(JSON.stringify({ kind: "system/join", payload: { ...space, token: this.token } }));
    };
    socket.onmessage = (event) => this.listener.message(event.data as string | ArrayBuffer);
    socket.onclose = (event) => {
      if (this.closed || this.socket !== socket) return;
      const final = FINAL.get(event.code);
      if (final !== undefined) {
        this.closed = true;
        this.listener.phase("over", final);
        return;
      }
      this.listener.phase("waiting", event.reason || "the connection was lost");
      this.timer = setTimeout(() => this.open(), this.wait * (0.75 + Math.random() / 2));
      this.wait = Math.min(LONGEST_WAIT, this.wait * 2);
    };
  }

  /** The welcome was received. */
  welcomed(): void {
    this.wait = FIRST_WAIT;
    this.listener.phase("live", "");
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    if (!this.socket) return;
    this.socket.onmessage = null; // messages in flight are discarded
    this.socket.close(1000);
  }
}
