// Small things that several views are made of. Whatever participants wrote is text here, and never anything else.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { GATEWAY } from "../model/fold";
import { Refused } from "../net/http";
import { hueOf, usePulse, useSession } from "./hooks";
import * as words from "./words";

/** A participant's name with its colour. */
export function Name({ id, plain }: { id: string; plain?: boolean }) {
  const shown = words.shown(id);
  if (plain) return <bdi class="said">{shown}</bdi>;
  return (
    <span class="name">
      <i class={`dot ${id === GATEWAY ? "hue-none" : `hue-${hueOf(id)}`}`} aria-hidden="true" />
      <bdi class="said">{shown}</bdi>
    </span>
  );
}

/** How long ago that was, as it grows. */
export function Ago({ time }: { time: number }) {
  const session = useSession();
  usePulse(1000);
  return <>{words.ago(session.now() - time)} ago</>;
}

export function Figure({ label, value, tone }: { label: string; value: string; tone?: "bad" | undefined }) {
  return (
    <div class={`figure ${tone ?? ""}`}>
      <dt>{label}</dt>
      <dd>{value}</dd>
    </div>
  );
}

export function Status({ status }: { status: string }) {
  return <span class={`status status-${STATUSES.has(status) ? status : "other"}`}>{status}</span>;
}
const STATUSES = new Set(["live", "ready", "ended"]);

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children && <p>{children}</p>}
    </div>
  );
}

/** A dialog that keeps the focus while it is open, and gives it back. */
export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ComponentChildren }) {
  const box = useRef<HTMLDialogElement>(null);
  const gone = useRef(false);
  useLayoutEffect(() => {
    const dialog = box.current!;
    const opener = document.activeElement;
    if (!dialog.open) dialog.showModal();
    return () => {
      gone.current = true;
      // Still in the document, where closing gives the focus back.
      if (dialog.open) dialog.close();
      queueMicrotask(() => keepFocus(opener));
    };
  }, []);
  return (
    <dialog
      ref={box}
      class="dialog"
      aria-label={title}
      onCancel={(event) => {
        // Closed by us, at once: its own `close` is told of later, and whoever opens it again meanwhile would be undone.
        event.preventDefault();
        onClose();
      }}
      onClose={() => gone.current || onClose()}
    >
      <header class="dialog-head">
        <h2>{title}</h2>
        <button type="button" class="quiet" aria-label="Close" onClick={onClose}>
          ✕
        </button>
      </header>
      {children}
    </dialog>
  );
}

/** What a dialog was opened from may be gone, or go because of what was done: then the focus is in the view. */
function keepFocus(opener: Element | null): void {
  const view = document.getElementById("main");
  const inView = (): void => {
    if (document.activeElement === document.body) view?.focus({ preventScroll: true });
  };
  inView();
  if (!view || !opener || document.activeElement !== opener) return;
  const watcher = new MutationObserver(() => {
    if (opener.isConnected && document.activeElement === opener) return;
    watcher.disconnect();
    inView();
  });
  watcher.observe(view, { childList: true, subtree: true });
}

export function told(problem: unknown): string {
  if (problem instanceof Refused) return `${problem.message} (${problem.code})`;
  return problem instanceof Error ? problem.message : String(problem);
}

/** A button that does something at the gateway, and says how that went. */
export function Doing({
  label,
  work,
  tone,
  disabled,
}: {
  label: string;
  work: () => Promise<unknown>;
  tone?: "primary" | "danger";
  disabled?: boolean;
}) {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const run = async (): Promise<void> => {
    setBusy(true);
    setProblem("");
    try {
      await work();
    } catch (reason) {
      setProblem(told(reason));
    } finally {
      setBusy(false);
    }
  };
  return (
    <span class="doing">
      <button type="button" class={tone ?? ""} disabled={busy || disabled} onClick={() => void run()}>
        {label}
      </button>
      {problem && (
        <span class="problem" role="alert">
          {problem}
        </span>
      )}
    </span>
  );
}

/** Pick one of the participants who are here. */
export function Pick({
  label,
  options,
  value,
  onPick,
}: {
  label: string;
  options: string[];
  value: string;
  onPick: (id: string) => void;
}) {
  return (
    <label class="field">
      <span>{label}</span>
      <select value={value} onChange={(event) => onPick(event.currentTarget.value)}>
        <option value="">choose…</option>
        {options.map((each) => (
          <option key={each} value={each}>
            {words.shown(each)}
          </option>
        ))}
      </select>
    </label>
  );
}

const PATHS: { [name: string]: string } = {
  space: "M4 5h7v6H4zM13 5h7v4h-7zM13 11h7v8h-7zM4 13h7v6H4z",
  timeline: "M4 6h16M4 12h16M4 18h16M8 4v4M14 10v4M11 16v4",
  streams: "M3 12h4l2-6 4 12 3-9 2 3h3",
  approvals: "M5 12l4 4 10-10M5 20h14",
  explain: "M9 9a3 3 0 1 1 4 2.8c-.7.3-1 .8-1 1.700V15M12 18.500v.5",
  leave: "M14 4h5v16h-5M10 8l-4 4 4 4M6 12h9",
};

export function Icon({ name }: { name: string }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name] ?? ""} />
    </svg>
  );
}
