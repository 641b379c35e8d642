// Formats numbers, sizes, times and untrusted text for display.

const counted = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export function count(value: number): string {
  return counted.format(value);
}

const UNITS = ["B", "kB", "MB", "GB", "TB"];

export function size(bytes: number): string {
  let unit = 0;
  let value = bytes;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(value) : fine.format(value)} ${UNITS[unit]}`;
}

export function inAll(text: string): string {
  return `(${counted.format(text.length)} characters in all)`;
}

/** A text, truncated to a length that can be displayed. */
export function truncate(text: string, limit: number): string {
  return text.length > limit ? `${text.slice(0, limit)}… ${inAll(text)}` : text;
}

// Control characters, characters that change the direction of text, invisible characters, and unusual spaces. With them,
// one name can look like another.
const INVISIBLE = /(?!\n)[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]|(?! )\p{Zs}/gu;

/** A text with each invisible character replaced by its number. Line breaks stay. */
export function visible(text: string): string {
  return text.replace(INVISIBLE, (character) => `\\u{${character.codePointAt(0)!.toString(16)}}`);
}

/** The same on one line, truncated. */
export function oneLine(text: string, limit = 200): string {
  return truncate(visible(text).replaceAll("\n", "\\n"), limit);
}

export function rate(perSecond: number): string {
  return perSecond === 0 ? "–" : `${perSecond < 10 ? fine.format(Number(perSecond.toFixed(1))) : counted.format(perSecond)}/s`;
}

export function number(value: number): string {
  return Number.isInteger(value) ? counted.format(value) : fine.format(value);
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}

export function clock(time: number, milliseconds = true): string {
  const at = new Date(time);
  const seconds = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return milliseconds ? `${seconds}.${String(at.getMilliseconds()).padStart(3, "0")}` : seconds;
}

export function iso(time: number): string {
  return Number.isFinite(time) ? new Date(time).toISOString() : "";
}

export function ago(milliseconds: number): string {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${two(Math.floor((seconds % 3600) / 60))} min`;
  return `${Math.floor(seconds / 86_400)} d`;
}
