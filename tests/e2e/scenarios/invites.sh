# A participant is invited while the space runs, joins, is kicked, and is invited again.
source "$(dirname "$0")/lib.sh"

space lab <<'YAML'
space: {id: lab}
participants:
  host: {capabilities: [{kind: "*"}], output_log: logs/host.jsonl, auto_connect: true}
  bob: {output_log: logs/bob.jsonl, auto_connect: true}
YAML
up
invite() { printf '{"id":"%s","kind":"space/invite","payload":{"participant_id":"%s","initial_capabilities":[{"kind":"chat"}]}}' "$2" "$1"; }
refused 403 capability_violation bob "$(invite guest i-0)"
answer=$(post host "$(invite guest i-1)")
is '.status == "created" and .participant_id == "guest" and (.connection_url | startswith("ws"))' "$answer"
bearer=$(jq -r .token <<<"$answer")
is ".payload.token == \"$bearer\" and .correlation_id == [\"i-1\"]" "$(seen logs/host.jsonl '.kind == "space/invite-ack"')"
seen logs/bob.jsonl '.kind == "system/presence" and .payload.event == "invited" and .payload.participant.id == "guest" and .payload.invited_by == "host"' >/dev/null
unseen logs/bob.jsonl '.kind == "space/invite-ack" or .kind == "space/invite"'
! grep -rqF "$bearer" .mew/logs .mew/journal logs/bob.jsonl logs/gateway.log || fail "the invitation's token is in a log"

chat guest 'thank you' >/dev/null
is '.from == "guest"' "$(seen logs/bob.jsonl '.payload.text == "thank you"')"
refused 403 capability_violation guest '{"kind":"mcp/request","payload":{"method":"tools/list"}}'
guest=$bearer
unset bearer
refused 409 already_exists host "$(invite guest i-2)"
is '.status == "already_exists" and (has("token") | not)' "$(cat "$scratch/answer")"
refused 409 already_exists host "$(invite bob i-3)"
refused 400 invalid_request host "$(invite ../evil i-4)"
has "$(jq -r .message "$scratch/answer")" 'contains invalid characters'

# The invitation outlives the gateway.
down
up
bearer=$guest chat guest 'back again' >/dev/null
seen logs/bob.jsonl '.payload.text == "back again"' >/dev/null

# Sent out, until invited again.
post host '{"kind":"space/kick","payload":{"participant_id":"guest","reason":"rude"}}' >/dev/null
seen logs/bob.jsonl '.kind == "system/presence" and .payload.event == "leave" and .payload.reason == "kicked"' >/dev/null
same "$(bearer=$guest asked guest '{"kind":"chat","payload":{"text":"hey"}}')" 403
is '.status == "created"' "$(post host "$(invite guest i-5)")"
bearer=$guest chat guest 'sorry' >/dev/null
refused 404 participant_not_found host '{"kind":"space/kick","payload":{"participant_id":"unknown"}}'
