# A request of a proposer is refused; another participant sends it instead, rejects it, or it is withdrawn.
source "$(dirname "$0")/lib.sh"

space lab <<'YAML'
space: {id: lab}
journal: {enabled: false}
participants:
  human: {capabilities: [{kind: "mcp/*"}, {kind: chat}], output_log: logs/human.jsonl, auto_connect: true}
  tools: {capabilities: [{kind: chat}], output_log: logs/tools.jsonl, auto_connect: true}
  novice:
    capabilities: [{kind: chat}, {kind: mcp/proposal}, {kind: mcp/withdraw}]
    output_log: logs/novice.jsonl
    auto_connect: true
YAML
up
call='"to":["tools"],"payload":{"method":"tools/call","params":{"name":"write","arguments":{"text":"x"}}}'
refused 403 capability_violation novice "{\"kind\":\"mcp/request\",$call}"
post novice "{\"id\":\"p-1\",\"kind\":\"mcp/proposal\",$call}" >/dev/null
proposal=$(seen logs/human.jsonl '.kind == "mcp/proposal" and .id == "p-1" and .from == "novice"')

# Approved: the very payload of the proposal, correlated with it, under the human's own name.
request=$(jq -c '{kind: "mcp/request", id: "r-1", to, correlation_id: [.id], payload}' <<<"$proposal")
post human "$request" >/dev/null
is '.from == "human" and .correlation_id == ["p-1"] and .payload.params.name == "write"' "$(seen logs/tools.jsonl '.id == "r-1"')"

# The answer needs no capability, and the one who proposed sees it as well.
post tools '{"kind":"mcp/response","to":["human"],"correlation_id":"r-1","payload":{"result":{"content":[{"type":"text","text":"done"}]}}}' >/dev/null
is '.correlation_id == ["r-1"] and .payload.result.content[0].text == "done"' "$(seen logs/novice.jsonl '.kind == "mcp/response"')"

# Rejected, and withdrawn.
post novice "{\"id\":\"p-2\",\"kind\":\"mcp/proposal\",$call}" >/dev/null
post human '{"kind":"mcp/reject","to":["novice"],"correlation_id":["p-2"],"payload":{"reason":"unsafe"}}' >/dev/null
seen logs/novice.jsonl '.kind == "mcp/reject" and .correlation_id == ["p-2"] and .payload.reason == "unsafe"' >/dev/null
post novice "{\"id\":\"p-3\",\"kind\":\"mcp/proposal\",$call}" >/dev/null
post novice '{"kind":"mcp/withdraw","correlation_id":["p-3"],"payload":{"reason":"no longer needed"}}' >/dev/null
seen logs/human.jsonl '.kind == "mcp/withdraw" and .correlation_id == ["p-3"]' >/dev/null
refused 403 capability_violation novice '{"kind":"mcp/reject","correlation_id":["p-3"],"payload":{}}'

# Nothing but the one request ever reached the tools.
same "$(jq -c 'select(.kind == "mcp/request") | .id' logs/tools.jsonl)" '"r-1"'
