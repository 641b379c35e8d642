# An agent thinks aloud: everything of one train of thought has one context, others can be distinguished, and it is stopped.
source "$(dirname "$0")/lib.sh"

space lab <<'YAML'
space: {id: lab}
journal: {enabled: false}
participants:
  human: {capabilities: [{kind: chat}, {kind: reasoning/cancel}], output_log: logs/human.jsonl, auto_connect: true}
  agent: {capabilities: [{kind: chat}, {kind: "reasoning/*"}, {kind: mcp/request}], output_log: logs/agent.jsonl, auto_connect: true}
YAML
up
question=$(chat human 'what is the weather?')
post agent "{\"id\":\"think-1\",\"kind\":\"reasoning/start\",\"correlation_id\":[\"$question\"],\"payload\":{\"message\":\"let me see\"}}" >/dev/null
post agent '{"id":"think-2","kind":"reasoning/start","payload":{"message":"something else"}}' >/dev/null
for thought in 1 2 3; do
    post agent "{\"kind\":\"reasoning/thought\",\"context\":\"think-1\",\"payload\":{\"message\":\"thought $thought\"}}" >/dev/null
done
post agent '{"kind":"reasoning/thought","context":"think-2","payload":{"message":"aside"}}' >/dev/null
post agent '{"id":"ask-1","kind":"mcp/request","context":"think-1","to":["weather"],"payload":{"method":"tools/call","params":{"name":"now"}}}' >/dev/null
post agent '{"kind":"reasoning/conclusion","context":"think-1","payload":{"message":"it rains"}}' >/dev/null
post agent "{\"id\":\"answer\",\"kind\":\"chat\",\"correlation_id\":[\"$question\"],\"payload\":{\"text\":\"it rains\"}}" >/dev/null

seen logs/human.jsonl '.id == "answer"' >/dev/null
same "$(jq -r 'select(.context == "think-1") | .kind' logs/human.jsonl | xargs)" \
    'reasoning/thought reasoning/thought reasoning/thought mcp/request reasoning/conclusion'
same "$(jq -r 'select(.context == "think-1" and .kind == "reasoning/thought") | .payload.message' logs/human.jsonl | xargs)" \
    'thought 1 thought 2 thought 3'
same "$(jq -r 'select(.context == "think-2") | .payload.message' logs/human.jsonl)" aside
is ".correlation_id == [\"$question\"] and (has(\"context\") | not)" "$(seen logs/human.jsonl '.id == "think-1"')"

# The human has heard enough of the other one, and may not think in the agent's place.
post human '{"kind":"reasoning/cancel","context":"think-2","payload":{"reason":"enough"}}' >/dev/null
is '.from == "human" and .payload.reason == "enough"' "$(seen logs/agent.jsonl '.kind == "reasoning/cancel" and .context == "think-2"')"
refused 403 capability_violation human '{"kind":"reasoning/thought","context":"think-2","payload":{"message":"x"}}'

# The history keeps the context, for later readers.
same "$(jq -r 'select(.event == "received" and .envelope.context == "think-1") | .id' .mew/logs/envelope-history.jsonl | wc -l)" 5
