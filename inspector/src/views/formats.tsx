// The formats that a stream declares for its data; a schema is shown as a list of fields.

import type { Format, StreamEntry } from "../model/fold";
import { Tree } from "../ui/tree";

export function Formats({ entry }: { entry: StreamEntry }) {
  const formats = entry.stream.formats;
  if (!formats.length) return null;
  return (
    <section class="panel" aria-labelledby="formats-title">
      <header class="panel-head">
        <h2 id="formats-title">{formats.length === 1 ? "Format" : `${formats.length} formats`}</h2>
      </header>
      {formats.map((format) => (
        <Described key={format.id} format={format} />
      ))}
    </section>
  );
}

function Described({ format }: { format: Format }) {
  return (
    <article class="format">
      <h3>
        <bdi class="verbatim">{String(format.id)}</bdi> {format.mime_type && <code class="chip verbatim">{String(format.mime_type)}</code>}
      </h3>
      {format.description && <p class="verbatim">{String(format.description)}</p>}
      {isObject(format.schema) && (
        <>
          <SchemaFields schema={format.schema} root={format.schema} depth={0} />
          <details class="more">
            <summary>The schema itself</summary>
            <div class="code">
              <Tree value={format.schema} open={2} />
            </div>
          </details>
        </>
      )}
    </article>
  );
}

type Schema = { [key: string]: unknown };

function isObject(value: unknown): value is Schema {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

const DEEPEST = 5;

/** Resolves a reference within the schema. Other references stay unresolved. */
function resolved(schema: Schema, root: Schema): Schema {
  const reference = schema["$ref"];
  if (typeof reference !== "string" || !reference.startsWith("#/")) return schema;
  let at: unknown = root;
  for (const part of reference.slice(2).split("/")) {
    const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
    at = isObject(at) && Object.hasOwn(at, key) ? at[key] : undefined;
  }
  return isObject(at) ? at : schema;
}

function SchemaFields({ schema: unresolved, root, depth }: { schema: Schema; root: Schema; depth: number }) {
  const schema = resolved(unresolved, root);
  const items = resolved(isObject(schema["items"]) ? schema["items"] : {}, root);
  const holder = isObject(schema["properties"]) ? schema : isObject(items["properties"]) ? items : null;
  if (!holder) return depth === 0 ? <p class="soft verbatim">{typeOf(schema, root)}</p> : null;
  const required = new Set(Array.isArray(holder["required"]) ? holder["required"] : []);
  return (
    <ul class="fields">
      {Object.entries(holder["properties"] as Schema).map(([name, value]) => {
        const field = isObject(value) ? value : {};
        const real = resolved(field, root);
        const text = real["description"] ?? field["description"] ?? real["title"];
        return (
          <li key={name}>
            <div class="schema-field">
              <code class="key verbatim">{name}</code>
              <span class="type verbatim">{typeOf(field, root)}</span>
              {!required.has(name) && <span class="soft">optional</span>}
              <bdi class="soft verbatim">{limitsOf(real)}</bdi>
              {typeof text === "string" && <bdi class="verbatim">{text}</bdi>}
            </div>
            {depth < DEEPEST && <SchemaFields schema={field} root={root} depth={depth + 1} />}
          </li>
        );
      })}
    </ul>
  );
}

function typeOf(unresolved: Schema, root: Schema): string {
  const schema = resolved(unresolved, root);
  if (Array.isArray(schema["enum"])) return schema["enum"].map((value) => JSON.stringify(value)).join(" | ").slice(0, 120);
  if ("const" in schema) return JSON.stringify(schema["const"]);
  for (const keyword of ["anyOf", "oneOf"]) {
    const choices = schema[keyword];
    if (Array.isArray(choices)) return choices.map((choice) => (isObject(choice) ? typeOf(choice, root) : "?")).join(" or ").slice(0, 120);
  }
  const type = Array.isArray(schema["type"]) ? schema["type"].join(" or ") : schema["type"];
  if (type === "array" && isObject(schema["items"])) return `list of ${typeOf(schema["items"], root)}`;
  return typeof type === "string" ? type : "anything";
}

const LIMITS: [string, string][] = [
  ["minimum", "≥"],
  ["exclusiveMinimum", ">"],
  ["maximum", "≤"],
  ["exclusiveMaximum", "<"],
  ["minLength", "length ≥"],
  ["maxLength", "length ≤"],
  ["minItems", "items ≥"],
  ["maxItems", "items ≤"],
  ["pattern", "like"],
  ["format", ""],
];

function limitsOf(schema: Schema): string {
  return LIMITS.filter(([name]) => typeof schema[name] === "number" || typeof schema[name] === "string")
    .map(([name, sign]) => `${sign} ${String(schema[name])}`.trim())
    .join(", ");
}
