// What whoever signed in with a participant's token may do. Whether is the gateway's word, asked for each (`explain`);
// what is not allowed is not offered.

import { useState } from "preact/hooks";
import { readExact } from "../model/exact";
import type { JsonObject, StreamEntry } from "../model/fold";
import type { Draft } from "../net/http";
import { useExplained } from "../ui/explained";
import { useSession, useTopics } from "../ui/hooks";
import { Dialog, Doing, Pick } from "../ui/parts";

const ANYBODY = "somebody-who-is-not-here-yet";

function useAllowed(drafts: (Draft | null)[]): boolean[] {
  return useExplained(drafts).map((each) => each?.allowed === true);
}

function useSend(): (draft: Draft) => Promise<JsonObject> {
  const session = useSession();
  return (draft) => session.send(draft);
}

export function ChatBox() {
  const session = useTopics("phase");
  const [text, setText] = useState("");
  const [may] = useAllowed([{ kind: "chat", payload: { text: "…" } }]);
  const send = useSend();
  const [problem, setProblem] = useState("");
  if (!may) return null;
  const submit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    if (!text.trim()) return;
    try {
      await send({ kind: "chat", payload: { text } });
      setText("");
      setProblem("");
    } catch (reason) {
      setProblem(String(reason));
    }
  };
  return (
    <section class="panel" aria-labelledby="chat-title">
      <header class="panel-head">
        <h2 id="chat-title">Say something</h2>
      </header>
      <form class="chat" onSubmit={(event) => void submit(event)}>
        <input aria-label={`Chat as ${session.who.id}`} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <button type="submit" class="primary">
          Send
        </button>
      </form>
      {problem && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
    </section>
  );
}

export function InviteButton() {
  const [open, setOpen] = useState(false);
  const [may] = useAllowed([{ kind: "space/invite", payload: { participant_id: ANYBODY, initial_capabilities: [] } }]);
  if (!may) return null;
  return (
    <>
      <button type="button" onClick={() => setOpen(true)}>
        Invite…
      </button>
      {open && <Invite onClose={() => setOpen(false)} />}
    </>
  );
}

function Invite({ onClose }: { onClose: () => void }) {
  const [id, setId] = useState("");
  const [capabilities, setCapabilities] = useState('[{"kind": "chat"}]');
  const [made, setMade] = useState<JsonObject | null>(null);
  const send = useSend();
  if (made) {
    return (
      <Dialog title={`Token of ${String(made["participant_id"])}`} onClose={onClose}>
        {typeof made["token"] === "string" ? (
          <>
            <p>This is shown once. Hand it over now; nobody can look it up here later.</p>
            <output class="token">{made["token"]}</output>
            <p class="soft">
              Connects at <code class="said">{String(made["connection_url"])}</code>
            </p>
            <Doing label="Copy the token" work={() => navigator.clipboard.writeText(String(made["token"]))} />
          </>
        ) : (
          <p>Invited again; its token has not changed.</p>
        )}
      </Dialog>
    );
  }
  const invite = async (): Promise<void> => {
    const initial = readExact(capabilities) as JsonObject[];
    setMade(await send({ kind: "space/invite", payload: { participant_id: id.trim(), initial_capabilities: initial } }));
  };
  return (
    <Dialog title="Invite a participant" onClose={onClose}>
      <label class="field">
        <span>Its id</span>
        <input value={id} autocomplete="off" spellcheck={false} onInput={(event) => setId(event.currentTarget.value)} />
      </label>
      <label class="field">
        <span>What it may send, as a list of capabilities</span>
        <textarea rows={4} spellcheck={false} value={capabilities} onInput={(event) => setCapabilities(event.currentTarget.value)} />
      </label>
      <p class="soft">An invitation is a power over the whole space: you may give what you do not have yourself.</p>
      <Doing label="Invite" tone="primary" disabled={!id.trim()} work={invite} />
    </Dialog>
  );
}

export function ParticipantActions({ id, capabilities }: { id: string; capabilities: JsonObject[] }) {
  const session = useTopics("space");
  const send = useSend();
  const [open, setOpen] = useState<"grant" | "revoke" | "kick" | null>(null);
  const pause: Draft = { kind: "participant/pause", to: [id], payload: {} };
  const resume: Draft = { kind: "participant/resume", to: [id], payload: {} };
  const kick: Draft = { kind: "space/kick", payload: { participant_id: id } };
  const first = session.view.you.capabilities.find((each) => !String(each["kind"]).startsWith("stream/write:")) ?? { kind: "chat" };
  const grant: Draft = { kind: "capability/grant", payload: { recipient: id, capabilities: [first] } };
  const revoke: Draft = { kind: "capability/revoke", payload: { recipient: id, capabilities: capabilities.slice(0, 1) } };
  const [mayPause, mayResume, mayKick, mayGrant, mayRevoke] = useAllowed([pause, resume, kick, grant, capabilities.length ? revoke : null]);
  if (id === session.view.you.id) return null;
  const paused = session.paused.has(id);
  return (
    <div class="actions">
      {mayPause && !paused && <Doing label="Pause" work={() => send(pause)} />}
      {mayResume && paused && <Doing label="Resume" work={() => send(resume)} />}
      {mayGrant && (
        <button type="button" onClick={() => setOpen("grant")}>
          Grant…
        </button>
      )}
      {mayRevoke && (
        <button type="button" onClick={() => setOpen("revoke")}>
          Revoke…
        </button>
      )}
      {mayKick && (
        <button type="button" class="danger" onClick={() => setOpen("kick")}>
          Remove…
        </button>
      )}
      {(open === "grant" || open === "revoke") && (
        <Capability id={id} what={open} first={open === "grant" ? first : (capabilities[0] ?? first)} onClose={() => setOpen(null)} />
      )}
      {open === "kick" && (
        <Dialog title={`Remove ${id}`} onClose={() => setOpen(null)}>
          <p>Its connection is closed, and it may not come back until it is invited again.</p>
          <Doing label={`Remove ${id}`} tone="danger" work={() => send(kick).then(() => setOpen(null))} />
        </Dialog>
      )}
    </div>
  );
}

function Capability({ id, what, first, onClose }: { id: string; what: "grant" | "revoke"; first: JsonObject; onClose: () => void }) {
  const [text, setText] = useState(JSON.stringify([first], null, 1));
  const send = useSend();
  const run = async (): Promise<void> => {
    const capabilities = readExact(text) as JsonObject[];
    await send({ kind: `capability/${what}`, payload: { recipient: id, capabilities } });
    onClose();
  };
  return (
    <Dialog title={what === "grant" ? `Grant something to ${id}` : `Revoke something of ${id}`} onClose={onClose}>
      <label class="field">
        <span>Capabilities</span>
        <textarea rows={6} spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <p class="soft">{what === "grant" ? "You can grant only what you have yourself." : "What is covered by these is taken away at once."}</p>
      <Doing label={what === "grant" ? "Grant" : "Revoke"} tone="primary" work={run} />
    </Dialog>
  );
}

/** Of a stream's owner, and of whoever may end streams. */
export function StreamActions({ entry }: { entry: StreamEntry }) {
  const session = useTopics("space");
  const send = useSend();
  const me = session.view.you.id;
  const stream_id = entry.stream_id;
  const others = [...session.view.participants.keys()];
  const writers = entry.authorized_writers.filter((each) => each !== entry.owner);
  const [granted, setGranted] = useState("");
  const [revoked, setRevoked] = useState("");
  const [heir, setHeir] = useState("");
  const [closing, setClosing] = useState(false);
  const [mayGrant, mayRevoke, mayTransfer, mayClose] = useAllowed([
    { kind: "stream/grant-write", payload: { stream_id, participant_id: me } },
    { kind: "stream/revoke-write", payload: { stream_id, participant_id: writers[0] ?? ANYBODY } },
    { kind: "stream/transfer-ownership", payload: { stream_id, new_owner: me } },
    { kind: "stream/close", payload: { stream_id } },
  ]);
  if (!mayGrant && !mayRevoke && !mayTransfer && !mayClose) return null;
  const grantable = others.filter((each) => !entry.authorized_writers.includes(each));
  return (
    <section class="panel" aria-labelledby="acts-title">
      <header class="panel-head">
        <h2 id="acts-title">What you may do</h2>
      </header>
      <div class="acts">
        {mayGrant && (
          <div class="act">
            <Pick label="Let somebody write" options={grantable} value={granted} onPick={setGranted} />
            <Doing
              label="Grant"
              disabled={!grantable.includes(granted)}
              work={() => send({ kind: "stream/grant-write", payload: { stream_id, participant_id: granted } })}
            />
          </div>
        )}
        {mayRevoke && writers.length > 0 && (
          <div class="act">
            <Pick label="Let somebody write no more" options={writers} value={revoked} onPick={setRevoked} />
            <Doing
              label="Revoke"
              disabled={!writers.includes(revoked)}
              work={() => send({ kind: "stream/revoke-write", payload: { stream_id, participant_id: revoked } })}
            />
          </div>
        )}
        {mayTransfer && (
          <div class="act">
            <Pick label="Hand the stream over" options={others} value={heir} onPick={setHeir} />
            <Doing
              label="Transfer"
              disabled={!others.includes(heir)}
              work={() => send({ kind: "stream/transfer-ownership", payload: { stream_id, new_owner: heir } })}
            />
          </div>
        )}
        {mayClose && (
          <button type="button" class="danger" onClick={() => setClosing(true)}>
            Close the stream…
          </button>
        )}
      </div>
      {closing && (
        <Dialog title={`Close ${stream_id}`} onClose={() => setClosing(false)}>
          <p>It ends for everybody, and its id is not used again.</p>
          <Doing
            label="Close the stream"
            tone="danger"
            work={() => send({ kind: "stream/close", payload: { stream_id } }).then(() => setClosing(false))}
          />
        </Dialog>
      )}
    </section>
  );
}
