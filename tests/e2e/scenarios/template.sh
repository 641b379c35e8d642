# A space is made of a template in this directory, with variables, a secret and an agent of its own, and it runs.
source "$(dirname "$0")/lib.sh"

mkdir -p "$scratch/project/templates/lab/agents"
enter "$scratch/project"
cat >templates/lab/template.json <<'JSON'
{
  "name": "lab", "description": "A lab for the test",
  "variables": [
    {"name": "SPACE_NAME", "description": "its name", "default": "${dirname}", "prompt": true},
    {"name": "AGENT_MODEL", "default": "small", "env_sources": ["LAB_MODEL"]},
    {"name": "GREETING", "default": "from ${username} in ${dirname}"},
    {"name": "API_KEY", "sensitive": true, "env_sources": ["LAB_KEY"]}
  ]
}
JSON
cat >templates/lab/space.yaml <<'YAML'
space: {id: lab, name: "{{SPACE_NAME}}", description: "{{GREETING}}"}
participants:
  human: {capabilities: [{kind: "*"}], output_log: .mew/logs/human.jsonl, auto_connect: true}
  greeter:
    command: bash
    args: ["./.mew/agents/greeter.sh", "${PORT}", "${SPACE}", "${PORT}"]
    env: {MODEL: "{{AGENT_MODEL}}", KEY: "{{API_KEY}}", WHERE: "at ${PORT}, ${NOWHERE_SET}"}
    auto_start: true
    capabilities: [{kind: chat}]
YAML
cat >templates/lab/agents/greeter.sh <<'AGENT'
echo "arguments: $*; key of ${#KEY} letters; $WHERE"
pwd
[[ $TOKEN == "$MEW_TOKEN" && $TOKEN == "$MEW_TOKEN_GREETER" && $SPACE == "$MEW_SPACE" ]] || exit 9
curl -sf -H "Authorization: Bearer $TOKEN" -d "{\"kind\":\"chat\",\"payload\":{\"text\":\"$MEW_PARTICIPANT_ID runs $MODEL\"}}" \
    "localhost:$PORT/participants/$MEW_PARTICIPANT_ID/messages"
AGENT

listed=$(mew init --list-templates)
grep -qE '^lab( |$)' <<<"$listed" || fail "the local template is not listed: $listed"
grep -qE '^default( |$)' <<<"$listed" || fail "the built-in ones are not listed: $listed"
has "$(mew init --template-info lab)" 'A lab for the test'
fails 1 mew init no-such-template
fails 2 mew space up --detach

LAB_KEY=very-secret LAB_MODEL=medium mew init lab </dev/null >"$scratch/said"
same "$(ls -A .mew | grep -cx -e space.yaml -e agents)" 2
grep -q 'name: "project"' .mew/space.yaml || fail "not the directory's name: $(cat .mew/space.yaml)"
grep -q "from $(id -un) in project" .mew/space.yaml || fail "no greeting: $(cat .mew/space.yaml)"
grep -q 'MODEL: "medium"' .mew/space.yaml || fail "not the environment's model"
! grep -rq very-secret .mew || fail "a secret was written down"
for entry in .mew/logs .mew/tokens; do
    grep -qF "$entry" .gitignore || fail "$entry is not ignored by git: $(cat .gitignore)"
done

fails 1 mew init lab
has "$said" --force
mew init lab --force --name "Another lab" --model large >/dev/null </dev/null
mew explain human chat --json >/dev/null

LAB_KEY=very-secret up
is ".spaceName == \"Another lab\"" "$(cat .mew/pids.json)"
seen .mew/logs/human.jsonl '.from == "greeter" and .payload.text == "greeter runs large"' >/dev/null
until_true grep -qs 'accepted' logs/greeter.log
has "$(cat logs/greeter.log)" "arguments: $port lab $port; key of 11 letters; at $port, "
has "$(cat logs/greeter.log)" "$here"
down

# Without a template, and without anybody at the keyboard, the defaults do.
mkdir "$scratch/plain"
enter "$scratch/plain"
mew init --name plain --description 'all alone' --port 0 </dev/null >/dev/null
up
has "$(mew space status)" plain
down
