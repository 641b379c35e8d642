// Components that several views share. Text of participants is always rendered as text.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { GATEWAY } from "../model/fold";
import { ApiError } from "../net/http";
import { hueOf, useInterval, useSession } from "./hooks";
import * as formatting from "./formatting";

/** A participant's name with its colour. */
export function Name({ id, plain }: { id: string; plain?: boolean }) {
  const shown = formatting.oneLine(id);
  if (plain) return <bdi class="verbatim">{shown}</bdi>;
  return (
    <span class="name">
      <i class={`dot ${id === GATEWAY ? "hue-none" : `hue-${hueOf(id)}`}`} aria-hidden="true" />
      <bdi class="verbatim">{shown}</bdi>
    </span>
  );
}

/** The time since a moment, updated every second. */
export function Ago({ time }: { time: number }) {
  const session = useSession();
  useInterval(1000);
  return <>{formatting.ago(session.now() - time)} ago</>;
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

export function EmptyState({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children && <p>{children}</p>}
    </div>
  );
}

/** A dialog that keeps the focus while it is open, and restores it afterwards. */
export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ComponentChildren }) {
  const box = useRef<HTMLDialogElement>(null);
  const removed = useRef(false);
  useLayoutEffect(() => {
    const dialog = box.current!;
    const opener = document.activeElement;
    if (!dialog.open) dialog.showModal();
    return () => {
      removed.current = true;
      // Closing restores the focus only while the dialog is in the document.
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
        // Closed here, because the browser's own `close` event comes later and would close a dialog opened in between.
        event.preventDefault();
        onClose();
      }}
      onClose={() => removed.current || onClose()}
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

/** Move the focus to the view if the element that opened the dialog is removed. */
function keepFocus(opener: Element | null): void {
  const view = document.getElementById("main");
  const focusView = (): void => {
    if (document.activeElement === document.body) view?.focus({ preventScroll: true });
  };
  focusView();
  if (!view || !opener || document.activeElement !== opener) return;
  const watcher = new MutationObserver(() => {
    if (opener.isConnected && document.activeElement === opener) return;
    watcher.disconnect();
    focusView();
  });
  watcher.observe(view, { childList: true, subtree: true });
}

export function errorText(problem: unknown): string {
  if (problem instanceof ApiError) return `${problem.message} (${problem.code})`;
  return problem instanceof Error ? problem.message : String(problem);
}

/** A button that runs an action at the gateway and shows its error. */
export function ActionButton({
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
      setProblem(errorText(reason));
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

/** Selects a participant. */
export function ParticipantSelect({
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
        {options.map((option) => (
          <option key={option} value={option}>
            {formatting.oneLine(option)}
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
