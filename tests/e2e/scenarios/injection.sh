# A space is started in the background, spoken to with curl, and watched through the files that it writes.
source "$(dirname "$0")/lib.sh"

space lab <<'YAML'
space: {id: lab, name: A lab}
participants:
  alice: {capabilities: [{kind: "*"}], output_log: logs/alice.jsonl, auto_connect: true}
  bob: {capabilities: [{kind: chat}], output_log: ./logs/deep/bob.jsonl, auto_connect: true}
  late: {tokens: [late-token], output_log: logs/late.jsonl}
YAML
up
same "$(jq -r '[.spaceId, .spaceName, .spaceDir] | join("|")' .mew/pids.json)" "lab|A lab|$here"
is '.agents == {} and .clients == {} and (.gateway | type == "number")' "$(cat .mew/pids.json)"
is "has(\"$here\")" "$(cat "$HOME/.mew/running-spaces.json")"
has "$(cat logs/gateway.log)" listening
same "$(stat -c %a .mew/tokens/alice.token .mew/tokens | xargs)" '600 700'
[[ -s .mew/.gitignore || -s .mew/tokens/.gitignore ]] || fail "nothing keeps tokens out of git"

# What is posted stands in every output log by the time it is answered.
answer=$(post alice '{"id":"env-1","kind":"chat","payload":{"text":"grüß dich"}}')
is '.id == "env-1" and .status == "accepted" and (.timestamp | length > 0)' "$answer"
line=$(grep -F '"id":"env-1"' logs/deep/bob.jsonl) || fail "bob's log lacks it: $(cat logs/deep/bob.jsonl)"
has "$line" '"payload":{"text":"grüß dich"}'
is '.from == "alice" and .protocol == "mew/v0.4" and .kind == "chat"' "$line"
is '.kind == "system/welcome" and .payload.you.id == "bob"' "$(head -n 1 logs/deep/bob.jsonl)"
seen logs/alice.jsonl '.id == "env-1"' >/dev/null

# One without auto_connect comes in with its first post.
[[ ! -s logs/late.jsonl ]] || fail "late is in before it said a word"
bearer=late-token post late '{"kind":"chat","payload":{"text":"here"}}' >/dev/null
seen logs/late.jsonl '.kind == "system/welcome"' >/dev/null
seen logs/alice.jsonl '.kind == "system/presence" and .payload.event == "join" and .payload.participant.id == "late"' >/dev/null

# A log that a script truncates continues from there.
: >logs/alice.jsonl
chat bob again >/dev/null
is '.payload.text == "again"' "$(head -n 1 logs/alice.jsonl)"

# Refusals.
refused 403 capability_violation bob '{"id":"no-1","kind":"mcp/request","payload":{"method":"tools/list"}}'
is '.attempted_kind == "mcp/request" and (.your_capabilities | length > 0)' "$(cat "$scratch/answer")"
unseen logs/alice.jsonl '.id == "no-1"'
refused 400 invalid_envelope alice '{"kind":"chat","payload":{}}'
refused 400 invalid_envelope alice 'no JSON at all'
refused 400 invalid_request alice '{"id":"no-2","kind":"system/register","payload":{}}'
seen logs/alice.jsonl '.kind == "system/error" and .correlation_id == ["no-2"] and .to == ["alice"]' >/dev/null
bearer=wrong refused 403 unauthorized alice '{"kind":"chat","payload":{"text":"x"}}'
bearer=$(token bob) refused 403 unauthorized alice '{"kind":"chat","payload":{"text":"x"}}'
same "$(curl -s -o /dev/null -w '%{http_code}' -d '{}' "localhost:$port/participants/alice/messages")" 401

# What bob would have received can be polled, too.
polled=$(curl -sf -H "Authorization: Bearer $(token bob)" "localhost:$port/participants/bob/messages")
is '(.messages | type == "array") and has("next") and has("dropped")' "$polled"

# The two logs of the gateway.
history=.mew/logs/envelope-history.jsonl
decisions=.mew/logs/capability-decisions.jsonl
keys='timestamp,event,id,envelope,participant,space_id,direction,transport,metadata'
received=$(seen $history '.event == "received" and .id == "env-1"')
same "$(jq -r 'keys_unsorted | join(",")' <<<"$received")" "$keys"
is '.participant == "alice" and .direction == "inbound" and .transport == "http" and .envelope.payload.text == "grüß dich"' "$received"
seen $history '.event == "delivered" and .id == "env-1" and .participant == "bob" and .direction == "outbound" and .transport == "virtual"' >/dev/null
is '.metadata.reason | length > 0' "$(seen $history '.event == "rejected" and .id == "no-1"')"
denied=$(seen $decisions '.envelope_id == "no-1"')
keys=timestamp,event,envelope_id,participant,space_id,result,required_capability,matched_capability,matched_source,granted_capabilities,metadata
same "$(jq -r 'keys_unsorted | join(",")' <<<"$denied")" "$keys"
is '.event == "capability_check" and .result == "denied" and .required_capability == "mcp/request" and .participant == "bob"' "$denied"
is '.result == "allowed" and (.matched_capability != null)' "$(seen $decisions '.envelope_id == "env-1"')"
! grep -rqF -e "$(token alice)" -e late-token .mew/logs logs .mew/pids.json || fail "a token stands in a log"

# Stopped and started again, every log is appended to; and logs can be switched off from outside.
down
same "$(cat "$scratch/down.out")" 'stopped gateway'
lines=$(wc -l <$history)
GATEWAY_LOGGING=off up
chat alice unheard >/dev/null
seen logs/deep/bob.jsonl '.payload.text == "unheard"' >/dev/null
seen logs/deep/bob.jsonl '.id == "env-1"' >/dev/null
down
same "$(wc -l <$history)" "$lines"
