// Signing in: whose token it is, and what follows from that, before anything happens.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Door, Refused, type Whoami } from "../net/http";
import { Session } from "../session";
import { told } from "../ui/parts";

interface Known {
  who: Whoami;
  token: string;
  space: string | null;
}

export function SignIn({ onSession, why }: { onSession: (session: Session) => void; why: string }) {
  const [known, setKnown] = useState<Known | null>(null);
  const enter = (each: Known): void => {
    setKnown(null);
    onSession(new Session(each.who, each.token, each.space));
  };
  return (
    <main class="signin" id="main">
      <div class="signin-card">
        <div class="brand">
          <Mark />
          <div>
            <h1>mew inspector</h1>
            <p>See a space at work.</p>
          </div>
        </div>
        {why && (
          <p class="notice" role="status">
            {why}
          </p>
        )}
        {known ? (
          <Confirm known={known} onEnter={() => enter(known)} onBack={() => setKnown(null)} />
        ) : (
          <Ask onKnown={(each) => (each.who.observer ? enter(each) : setKnown(each))} />
        )}
      </div>
      <p class="signin-foot">The token stays in this page’s memory. Reload or close the tab, and it is forgotten.</p>
    </main>
  );
}

function Ask({ onKnown }: { onKnown: (known: Known) => void }) {
  const [token, setToken] = useState("");
  const [space, setSpace] = useState("");
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => input.current?.focus(), []);
  const submit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    const given = token.trim();
    if (!given) {
      setProblem("Paste a token first.");
      return;
    }
    if (!/^[\x21-\x7e]+$/.test(given)) {
      setProblem("This is no token: it holds spaces or letters that no token has.");
      return;
    }
    setBusy(true);
    setProblem("");
    const wanted = space.trim() || null;
    try {
      const who = await new Door(given, wanted).whoami();
      onKnown({ who, token: given, space: wanted });
    } catch (reason) {
      setProblem(reason instanceof Refused ? sayRefused(reason) : `The gateway cannot be reached: ${told(reason)}`);
      input.current?.select();
    } finally {
      setBusy(false);
    }
  };
  return (
    <form onSubmit={(event) => void submit(event)} class="signin-form">
      <label class="field">
        <span>Token</span>
        <input
          ref={input}
          type="password"
          name="token"
          autocomplete="off"
          spellcheck={false}
          value={token}
          aria-invalid={problem ? true : undefined}
          aria-describedby={problem ? "signin-problem" : "signin-help"}
          onInput={(event) => setToken(event.currentTarget.value)}
        />
      </label>
      <details class="more">
        <summary>Another space than the gateway’s first</summary>
        <label class="field">
          <span>Space</span>
          <input name="space" autocomplete="off" spellcheck={false} value={space} onInput={(event) => setSpace(event.currentTarget.value)} />
        </label>
      </details>
      {problem && (
        <p class="problem" role="alert" id="signin-problem">
          {problem}
        </p>
      )}
      <button type="submit" class="primary wide" disabled={busy}>
        {busy ? "Asking…" : "Sign in"}
      </button>
      <div class="signin-help" id="signin-help">
        <p>
          <strong>An observer’s token</strong> only looks: as many tabs as you like, nobody notices.
        </p>
        <p>
          <strong>A participant’s token</strong> acts in its name, and takes over its socket. You are asked before that happens.
        </p>
      </div>
    </form>
  );
}

function sayRefused(refused: Refused): string {
  if (refused.code === "unauthorized") return "The gateway does not know this token.";
  if (refused.code === "space_not_found") return "There is no such space here.";
  return told(refused);
}

function Confirm({ known, onEnter, onBack }: { known: Known; onEnter: () => void; onBack: () => void }) {
  const button = useRef<HTMLButtonElement>(null);
  useLayoutEffect(() => button.current?.focus(), []);
  const { id, present, space } = known.who;
  return (
    <div class="confirm" role="group" aria-label="Confirm">
      <p>
        This is the token of <strong class="said">{id}</strong> in <strong class="said">{space}</strong>. What you do here, {id} does.
      </p>
      {present ? (
        <p class="warning">
          <strong>{id} is connected now.</strong> Signing in takes over its socket: the program that has it is disconnected, and does
          not come back by itself.
        </p>
      ) : (
        <p class="notice">
          {id} is not connected now. While you are here you hold its one socket; whoever connects as {id} takes it over from you.
        </p>
      )}
      <button ref={button} type="button" class="primary wide" onClick={onEnter}>
        {present ? `Take over and sign in as ${id}` : `Sign in as ${id}`}
      </button>
      <button type="button" class="wide" onClick={onBack}>
        Use another token
      </button>
    </div>
  );
}

export function Mark() {
  return (
    <svg class="mark" viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <path class="mark-face" d="M5 20V8l6.500 5h9L27 8v12c0 3.600-4.900 6.500-11 6.500S5 23.600 5 20Z" />
      <path class="mark-wave" d="M9 19.500h3l1.500-3 2.500 6 2.500-6 1.500 3h3" />
    </svg>
  );
}
