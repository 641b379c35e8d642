# A capability is granted, used, acknowledged by its holder, and revoked; no participant grants what it does not have.
source "$(dirname "$0")/lib.sh"

space lab <<'YAML'
space: {id: lab}
participants:
  human: {capabilities: [{kind: "*"}], output_log: logs/human.jsonl, auto_connect: true}
  deputy:
    capabilities: [{kind: capability/grant}, {kind: "mcp/request", payload: {method: tools/list}}]
    output_log: logs/deputy.jsonl
    auto_connect: true
  agent:
    capabilities: [{kind: chat}, {kind: capability/grant-ack}]
    output_log: logs/agent.jsonl
    auto_connect: true
YAML
up
call='{"kind":"mcp/request","to":["files"],"payload":{"method":"tools/call","params":{"name":"NAME","arguments":{}}}}'
refused 403 capability_violation agent "${call/NAME/write_file}"

post human '{"id":"g-1","kind":"capability/grant","to":["agent"],"payload":{"recipient":"agent","reason":"trusted","capabilities":[{"kind":"mcp/request","payload":{"method":"tools/call","params":{"name":"write_*"}}}]}}' >/dev/null
is '.from == "human" and .payload.recipient == "agent"' "$(seen logs/deputy.jsonl '.id == "g-1"')"
welcome=$(seen logs/agent.jsonl '.kind == "system/welcome" and any(.payload.you.capabilities[]; .kind == "mcp/request")')
is '.payload | has("active_streams") and has("participants")' "$welcome"
seen logs/human.jsonl '.kind == "system/presence" and .payload.event == "capabilities" and .payload.participant.id == "agent"' >/dev/null
unseen logs/human.jsonl '.kind == "capability/grant-ack"'

post agent "${call/NAME/write_file}" >/dev/null
refused 403 capability_violation agent "${call/NAME/delete_file}"
post agent '{"kind":"capability/grant-ack","to":["human"],"correlation_id":["g-1"],"payload":{"status":"accepted"}}' >/dev/null
is '.from == "agent" and .correlation_id == ["g-1"]' "$(seen logs/human.jsonl '.kind == "capability/grant-ack"')"

# Only own capabilities, and only to known participants.
refused 403 capability_violation deputy '{"kind":"capability/grant","payload":{"recipient":"agent","capabilities":[{"kind":"mcp/request"}]}}'
post deputy '{"kind":"capability/grant","payload":{"recipient":"agent","capabilities":[{"kind":"mcp/request","payload":{"method":"tools/list"}}]}}' >/dev/null
post agent '{"kind":"mcp/request","to":["files"],"payload":{"method":"tools/list"}}' >/dev/null
refused 404 participant_not_found human '{"kind":"capability/grant","payload":{"recipient":"unknown","capabilities":[{"kind":"chat"}]}}'
refused 403 capability_violation agent '{"kind":"capability/grant","payload":{"recipient":"deputy","capabilities":[{"kind":"chat"}]}}'

# A grant outlives the gateway; a revoke applies immediately.
down
up
post agent "${call/NAME/write_file}" >/dev/null
post human '{"kind":"capability/revoke","payload":{"recipient":"agent","grant_id":"g-1"}}' >/dev/null
refused 403 capability_violation agent "${call/NAME/write_file}"
seen logs/agent.jsonl '.kind == "capability/revoke" and .payload.grant_id == "g-1"' >/dev/null
is 'any(.payload.you.capabilities[]; .payload.params.name? == "write_*") | not' "$(grep -F system/welcome logs/agent.jsonl | tail -n 1)"
