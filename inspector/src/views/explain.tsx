// Explain: whether the gateway would accept a message, and why. Nothing is sent, and this page matches no capabilities.

import { useEffect, useRef, useState } from "preact/hooks";
import { readExact } from "../model/exact";
import type { JsonObject } from "../model/fold";
import type { Explanation } from "../net/http";
import { useTopics } from "../ui/hooks";
import { errorText } from "../ui/parts";

const KINDS: [string, string][] = [
  ["chat", '{"text": "hello"}'],
  ["mcp/request", '{"method": "tools/call", "params": {"name": "…", "arguments": {}}}'],
  ["mcp/proposal", '{"method": "tools/call", "params": {"name": "…", "arguments": {}}}'],
  ["mcp/reject", "{}"],
  ["reasoning/start", '{"message": "…"}'],
  ["capability/grant", '{"recipient": "…", "capabilities": [{"kind": "chat"}]}'],
  ["capability/revoke", '{"recipient": "…", "capabilities": [{"kind": "chat"}]}'],
  ["space/invite", '{"participant_id": "dana", "initial_capabilities": []}'],
  ["space/kick", '{"participant_id": "…"}'],
  ["participant/pause", "{}"],
  ["stream/request", '{"direction": "upload", "description": "…"}'],
  ["stream/announce", '{"formats": [{"id": "json"}]}'],
  ["stream/data", '{"stream_id": "…", "sequence": 1, "content": {}}'],
  ["stream/grant-write", '{"stream_id": "…", "participant_id": "…"}'],
  ["stream/revoke-write", '{"stream_id": "…", "participant_id": "…"}'],
  ["stream/transfer-ownership", '{"stream_id": "…", "new_owner": "…"}'],
  ["stream/close", '{"stream_id": "…"}'],
];

export function Explain({ subject }: { subject: string | null }) {
  const session = useTopics("space", "history");
  const people = [...new Set([...(session.canAct ? [session.view.you.id] : []), ...session.view.participants.keys(), ...session.absent.keys()])];
  const [who, setWho] = useState(subject ?? people[0] ?? "");
  const [kind, setKind] = useState("chat");
  const [payload, setPayload] = useState(KINDS[0]![1]);
  const [to, setTo] = useState("");
  const [answer, setAnswer] = useState<{ who: string; explanation: Explanation } | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    if (subject !== null) setWho(subject);
  }, [subject]);
  const pickKind = (next: string): void => {
    setKind(next);
    const example = KINDS.find(([candidate]) => candidate === next)?.[1];
    if (example) setPayload(fill(example, [...session.view.streams.keys()], people, who));
  };
  const last = useRef(0);
  const ask = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    // The answer to an earlier request can arrive later.
    const number = (last.current += 1);
    setProblem("");
    let parsed: JsonObject | undefined;
    try {
      parsed = payload.trim() ? (readExact(payload) as JsonObject) : undefined;
    } catch {
      setAnswer(null);
      setProblem("The payload is not valid JSON.");
      return;
    }
    const recipients = to.split(/[\s,]+/).filter(Boolean);
    try {
      const envelope = { kind, ...(parsed === undefined ? {} : { payload: parsed }), ...(recipients.length ? { to: recipients } : {}) };
      const explanation = await session.api.explain(who, envelope);
      if (number === last.current) setAnswer({ who, explanation });
    } catch (reason) {
      if (number !== last.current) return;
      setAnswer(null);
      setProblem(errorText(reason));
    }
  };
  return (
    <div class="view explain">
      <header class="view-head">
        <h1>Explain</h1>
      </header>
      <p class="lead">Shows whether a participant may send a message, and why. The gateway answers; nothing is sent.</p>
      <div class="explain-columns">
        <form class="panel explain-form" onSubmit={(event) => void ask(event)}>
          <label class="field">
            <span>If this participant</span>
            <input list="people" value={who} autocomplete="off" spellcheck={false} onInput={(event) => setWho(event.currentTarget.value)} />
          </label>
          <datalist id="people">
            {people.map((id) => (
              <option key={id} value={id} />
            ))}
          </datalist>
          <label class="field">
            <span>sent this kind</span>
            <input list="kinds" value={kind} autocomplete="off" spellcheck={false} onInput={(event) => pickKind(event.currentTarget.value)} />
          </label>
          <datalist id="kinds">
            {KINDS.map(([option]) => (
              <option key={option} value={option} />
            ))}
          </datalist>
          <label class="field">
            <span>to (optional)</span>
            <input value={to} autocomplete="off" spellcheck={false} onInput={(event) => setTo(event.currentTarget.value)} />
          </label>
          <label class="field">
            <span>with this payload</span>
            <textarea rows={7} spellcheck={false} value={payload} onInput={(event) => setPayload(event.currentTarget.value)} />
          </label>
          <button type="submit" class="primary">
            Explain
          </button>
        </form>
        <div class="explain-answer" aria-live="polite">
          {problem && (
            <p class="problem" role="alert">
              {problem}
            </p>
          )}
          {answer ? <Answer who={answer.who} explanation={answer.explanation} /> : !problem && <p class="soft explain-idle">The answer appears here.</p>}
        </div>
      </div>
    </div>
  );
}

/** Fills the streams and participants of the space into an example. */
function fill(example: string, streams: string[], people: string[], who: string): string {
  const other = people.find((id) => id !== who) ?? who;
  const fillIn = (text: string, names: string[], value: string | undefined): string =>
    value === undefined ? text : names.reduce((filled, name) => filled.replace(`"${name}": "…"`, `"${name}": ${JSON.stringify(value)}`), text);
  return fillIn(fillIn(example, ["stream_id"], streams[0]), ["recipient", "participant_id", "new_owner"], other);
}

const SOURCES: { [source: string]: string } = {
  configured: "configured in the space’s file",
  invited: "given with the invitation",
  default: "the space’s default",
  baseline: "every participant has it",
  owner: "as the owner of the stream",
  writer: "as a writer of the stream",
  everyone: "every participant may",
};

function source(name: string | null): string {
  if (name === null) return "–";
  if (name.startsWith("grant:")) return `granted, by envelope ${name.slice("grant:".length)}`;
  return SOURCES[name] ?? name;
}

function Answer({ who, explanation: answer }: { who: string; explanation: Explanation }) {
  return (
    <article class={`panel verdict ${answer.allowed ? "yes" : "no"}`}>
      <h2>
        <span class="verdict-sign" aria-hidden="true">
          {answer.allowed ? "✓" : "✕"}
        </span>
        {answer.allowed ? "Allowed" : "Rejected"}
      </h2>
      <p>
        <strong class="verbatim">{who}</strong> {answer.allowed ? "may send" : "may not send"} <code class="verbatim">{answer.kind ?? "this"}</code>
        {answer.allowed ? "" : " like this"}.
      </p>
      <dl class="facts stacked">
        <div>
          <dt>Why</dt>
          <dd class="verbatim">{answer.reason}</dd>
        </div>
        {answer.error !== null && (
          <div>
            <dt>Code</dt>
            <dd>
              <code class="verbatim">{answer.error}</code>
            </dd>
          </div>
        )}
        {answer.capability && (
          <div>
            <dt>Capability</dt>
            <dd>
              <code class="verbatim">{JSON.stringify(answer.capability)}</code>
            </dd>
          </div>
        )}
        {answer.source !== null && (
          <div>
            <dt>Comes from</dt>
            <dd class="verbatim">{source(answer.source)}</dd>
          </div>
        )}
        {answer.nearest && (
          <div>
            <dt>Nearest</dt>
            <dd>
              <code class="verbatim">{JSON.stringify(answer.nearest.capability)}</code>
              <p class="verbatim">{answer.nearest.why}</p>
              <p class="soft verbatim">{source(answer.nearest.source)}</p>
            </dd>
          </div>
        )}
      </dl>
    </article>
  );
}
