// The sign-in form. It shows the participant of a token, and the consequences of signing in, before it connects.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { GatewayApi, ApiError, type Whoami } from "../net/http";
import { Session } from "../session";
import { errorText } from "../ui/parts";

interface VerifiedToken {
  who: Whoami;
  token: string;
  space: string | null;
}

export function SignIn({ onSession, why }: { onSession: (session: Session) => void; why: string }) {
  const [verified, setVerified] = useState<VerifiedToken | null>(null);
  const enter = (verified: VerifiedToken): void => {
    setVerified(null);
    onSession(new Session(verified.who, verified.token, verified.space));
  };
  return (
    <main class="signin" id="main">
      <div class="signin-card">
        <div class="brand">
          <Mark />
          <div>
            <h1>mew inspector</h1>
            <p>Watch a space live.</p>
          </div>
        </div>
        {why && (
          <p class="notice" role="status">
            {why}
          </p>
        )}
        {verified ? (
          <Confirm token={verified} onEnter={() => enter(verified)} onBack={() => setVerified(null)} />
        ) : (
          <TokenForm onVerified={(result) => (result.who.observer ? enter(result) : setVerified(result))} />
        )}
      </div>
      <p class="signin-foot">The token stays in the memory of this page. It is lost when you reload or close the tab.</p>
    </main>
  );
}

function TokenForm({ onVerified }: { onVerified: (result: VerifiedToken) => void }) {
  const [token, setToken] = useState("");
  const [space, setSpace] = useState("");
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => input.current?.focus(), []);
  const submit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    const trimmed = token.trim();
    if (!trimmed) {
      setProblem("Paste a token first.");
      return;
    }
    if (!/^[\x21-\x7e]+$/.test(trimmed)) {
      setProblem("This is not a valid token: it contains spaces or characters that tokens do not have.");
      return;
    }
    setBusy(true);
    setProblem("");
    const name = space.trim() || null;
    try {
      const who = await new GatewayApi(trimmed, name).whoami();
      onVerified({ who, token: trimmed, space: name });
    } catch (reason) {
      setProblem(reason instanceof ApiError ? signInError(reason) : `The gateway cannot be reached: ${errorText(reason)}`);
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
        <summary>Another space (default: the gateway’s first)</summary>
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
        {busy ? "Signing in…" : "Sign in"}
      </button>
      <div class="signin-help" id="signin-help">
        <p>
          <strong>An observer’s token</strong> only reads. You can open any number of tabs, and participants do not notice.
        </p>
        <p>
          <strong>A participant’s token</strong> acts as this participant and takes over its connection, after a confirmation.
        </p>
      </div>
    </form>
  );
}

function signInError(error: ApiError): string {
  if (error.code === "unauthorized") return "The gateway does not know this token.";
  if (error.code === "space_not_found") return "The gateway has no such space.";
  return errorText(error);
}

function Confirm({ token, onEnter, onBack }: { token: VerifiedToken; onEnter: () => void; onBack: () => void }) {
  const button = useRef<HTMLButtonElement>(null);
  useLayoutEffect(() => button.current?.focus(), []);
  const { id, present, space } = token.who;
  return (
    <div class="confirm" role="group" aria-label="Confirm">
      <p>
        This is the token of <strong class="verbatim">{id}</strong> in <strong class="verbatim">{space}</strong>. Your actions here are actions of {id}.
      </p>
      {present ? (
        <p class="warning">
          <strong>{id} is connected now.</strong> Signing in takes over its connection: the program that uses it is disconnected and does
          not reconnect by itself.
        </p>
      ) : (
        <p class="notice">
          {id} is not connected now. You use its only connection: another client that connects as {id} replaces you.
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
