// The actions of a participant. The gateway decides which actions are allowed (`explain`); other actions are not shown.

import { useState } from "preact/hooks";
import { readExact } from "../model/exact";
import type { JsonObject, StreamEntry } from "../model/fold";
import type { Draft } from "../net/http";
import { useExplained } from "../ui/explained";
import { useSession, useTopics } from "../ui/hooks";
import { Dialog, ActionButton, ParticipantSelect } from "../ui/parts";

/** A valid id, for explanations that do not depend on the id. */
const PLACEHOLDER_ID = "participant-not-present-yet";

function useAllowed(drafts: (Draft | null)[]): boolean[] {
  return useExplained(drafts).map((explanation) => explanation?.allowed === true);
}

function useSend(): (draft: Draft) => Promise<JsonObject> {
  const session = useSession();
  return (draft) => session.send(draft);
}

export function ChatBox() {
  const session = useTopics("phase");
  const [text, setText] = useState("");
  const [allowed] = useAllowed([{ kind: "chat", payload: { text: "…" } }]);
  const send = useSend();
  const [problem, setProblem] = useState("");
  if (!allowed) return null;
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
        <h2 id="chat-title">Send a message</h2>
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
  const [allowed] = useAllowed([{ kind: "space/invite", payload: { participant_id: PLACEHOLDER_ID, initial_capabilities: [] } }]);
  if (!allowed) return null;
  return (
    <>
      <button type="button" onClick={() => setOpen(true)}>
        Invite…
      </button>
      {open && <InviteDialog onClose={() => setOpen(false)} />}
    </>
  );
}

function InviteDialog({ onClose }: { onClose: () => void }) {
  const [id, setId] = useState("");
  const [capabilities, setCapabilities] = useState('[{"kind": "chat"}]');
  const [invitation, setInvitation] = useState<JsonObject | null>(null);
  const send = useSend();
  if (invitation) {
    return (
      <Dialog title={`Token of ${String(invitation["participant_id"])}`} onClose={onClose}>
        {typeof invitation["token"] === "string" ? (
          <>
            <p>The token is shown only once. Copy it now: this page cannot show it again.</p>
            <output class="token">{invitation["token"]}</output>
            <p class="soft">
              The participant connects to <code class="verbatim">{String(invitation["connection_url"])}</code>
            </p>
            <ActionButton label="Copy the token" work={() => navigator.clipboard.writeText(String(invitation["token"]))} />
          </>
        ) : (
          <p>The participant was invited again. Its token has not changed.</p>
        )}
      </Dialog>
    );
  }
  const invite = async (): Promise<void> => {
    const initial = readExact(capabilities) as JsonObject[];
    setInvitation(await send({ kind: "space/invite", payload: { participant_id: id.trim(), initial_capabilities: initial } }));
  };
  return (
    <Dialog title="Invite a participant" onClose={onClose}>
      <label class="field">
        <span>Participant id</span>
        <input value={id} autocomplete="off" spellcheck={false} onInput={(event) => setId(event.currentTarget.value)} />
      </label>
      <label class="field">
        <span>What it may send, as a list of capabilities</span>
        <textarea rows={4} spellcheck={false} value={capabilities} onInput={(event) => setCapabilities(event.currentTarget.value)} />
      </label>
      <p class="soft">An invitation can give any capability, including capabilities that you do not have.</p>
      <ActionButton label="Invite" tone="primary" disabled={!id.trim()} work={invite} />
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
  const first = session.view.you.capabilities.find((capability) => !String(capability["kind"]).startsWith("stream/write:")) ?? { kind: "chat" };
  const grant: Draft = { kind: "capability/grant", payload: { recipient: id, capabilities: [first] } };
  const revoke: Draft = { kind: "capability/revoke", payload: { recipient: id, capabilities: capabilities.slice(0, 1) } };
  const [mayPause, mayResume, mayKick, mayGrant, mayRevoke] = useAllowed([pause, resume, kick, grant, capabilities.length ? revoke : null]);
  if (id === session.view.you.id) return null;
  const paused = session.paused.has(id);
  return (
    <div class="actions">
      {mayPause && !paused && <ActionButton label="Pause" work={() => send(pause)} />}
      {mayResume && paused && <ActionButton label="Resume" work={() => send(resume)} />}
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
        <CapabilityDialog id={id} action={open} first={open === "grant" ? first : (capabilities[0] ?? first)} onClose={() => setOpen(null)} />
      )}
      {open === "kick" && (
        <Dialog title={`Remove ${id}`} onClose={() => setOpen(null)}>
          <p>The connection of this participant is closed. It cannot join again until it is invited again.</p>
          <ActionButton label={`Remove ${id}`} tone="danger" work={() => send(kick).then(() => setOpen(null))} />
        </Dialog>
      )}
    </div>
  );
}

function CapabilityDialog({ id, action, first, onClose }: { id: string; action: "grant" | "revoke"; first: JsonObject; onClose: () => void }) {
  const [text, setText] = useState(JSON.stringify([first], null, 1));
  const send = useSend();
  const run = async (): Promise<void> => {
    const capabilities = readExact(text) as JsonObject[];
    await send({ kind: `capability/${action}`, payload: { recipient: id, capabilities } });
    onClose();
  };
  return (
    <Dialog title={action === "grant" ? `Grant to ${id}` : `Revoke from ${id}`} onClose={onClose}>
      <label class="field">
        <span>Capabilities</span>
        <textarea rows={6} spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <p class="soft">{action === "grant" ? "You can grant only capabilities that you have." : "Every capability that these cover is revoked immediately."}</p>
      <ActionButton label={action === "grant" ? "Grant" : "Revoke"} tone="primary" work={run} />
    </Dialog>
  );
}

/** The actions of a stream's owner and of participants that may close streams. */
export function StreamActions({ entry }: { entry: StreamEntry }) {
  const session = useTopics("space");
  const send = useSend();
  const me = session.view.you.id;
  const stream_id = entry.stream_id;
  const others = [...session.view.participants.keys()];
  const writers = entry.authorized_writers.filter((writer) => writer !== entry.owner);
  const [granted, setGranted] = useState("");
  const [revoked, setRevoked] = useState("");
  const [newOwner, setNewOwner] = useState("");
  const [closing, setClosing] = useState(false);
  const [mayGrant, mayRevoke, mayTransfer, mayClose] = useAllowed([
    { kind: "stream/grant-write", payload: { stream_id, participant_id: me } },
    { kind: "stream/revoke-write", payload: { stream_id, participant_id: writers[0] ?? PLACEHOLDER_ID } },
    { kind: "stream/transfer-ownership", payload: { stream_id, new_owner: me } },
    { kind: "stream/close", payload: { stream_id } },
  ]);
  if (!mayGrant && !mayRevoke && !mayTransfer && !mayClose) return null;
  const grantable = others.filter((id) => !entry.authorized_writers.includes(id));
  return (
    <section class="panel" aria-labelledby="acts-title">
      <header class="panel-head">
        <h2 id="acts-title">Actions</h2>
      </header>
      <div class="acts">
        {mayGrant && (
          <div class="act">
            <ParticipantSelect label="Grant write access to" options={grantable} value={granted} onPick={setGranted} />
            <ActionButton
              label="Grant"
              disabled={!grantable.includes(granted)}
              work={() => send({ kind: "stream/grant-write", payload: { stream_id, participant_id: granted } })}
            />
          </div>
        )}
        {mayRevoke && writers.length > 0 && (
          <div class="act">
            <ParticipantSelect label="Revoke write access of" options={writers} value={revoked} onPick={setRevoked} />
            <ActionButton
              label="Revoke"
              disabled={!writers.includes(revoked)}
              work={() => send({ kind: "stream/revoke-write", payload: { stream_id, participant_id: revoked } })}
            />
          </div>
        )}
        {mayTransfer && (
          <div class="act">
            <ParticipantSelect label="Transfer ownership to" options={others} value={newOwner} onPick={setNewOwner} />
            <ActionButton
              label="Transfer"
              disabled={!others.includes(newOwner)}
              work={() => send({ kind: "stream/transfer-ownership", payload: { stream_id, new_owner: newOwner } })}
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
          <p>The stream ends for all participants. Its id is not used again.</p>
          <ActionButton
            label="Close the stream"
            tone="danger"
            work={() => send({ kind: "stream/close", payload: { stream_id } }).then(() => setClosing(false))}
          />
        </Dialog>
      )}
    </section>
  );
}
