// The WebSocket: joins, hands over whatever comes, and comes back after a break unless the gateway said for good.

import { address } from "./http";

export type Phase = "connecting" | "live" | "waiting" | "over";

export interface Ear {
  message(data: string | ArrayBuffer): void;
  phase(phase: Phase, why: string): void;
}

const FINAL: ReadonlyMap<number, string> = new Map([
  [4401, "The gateway does not take this token any more."],
  [4403, "You were removed from the space."],
  [4404, "The space is no longer there."],
  [4409, "Another connection took over: somebody signed in with the same participant's token."],
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
  private readonly ear: Ear;

  constructor(token: string, space: string | null, ear: Ear) {
    this.token = token;
    this.space = space;
    this.ear = ear;
    this.open();
  }

  private open(): void {
    this.ear.phase("connecting", "");
    const url = address("");
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    url.hash = "";
    const socket = (this.socket = new WebSocket(url));
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      const space = this.space === null ? {} : { space: this.space };
      socket.send(JSON.stringify({ kind: "system/join", payload: { ...space, token: this.token } }));
    };
    socket.onmessage = (event) => this.ear.message(event.data as string | ArrayBuffer);
    socket.onclose = (event) => {
      if (this.closed || this.socket !== socket) return;
      const final = FINAL.get(event.code);
      if (final !== undefined) {
        this.closed = true;
        this.ear.phase("over", final);
        return;
      }
      this.ear.phase("waiting", event.reason || "the connection broke");
      this.timer = setTimeout(() => this.open(), this.wait * (0.75 + Math.random() / 2));
      this.wait = Math.min(LONGEST_WAIT, this.wait * 2);
    };
  }

  /** The welcome has come. */
  welcomed(): void {
    this.wait = FIRST_WAIT;
    this.ear.phase("live", "");
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    if (!this.socket) return;
    this.socket.onmessage = null; // whatever is still under way comes to nobody
    this.socket.close(1000);
  }
}
