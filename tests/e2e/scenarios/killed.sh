# Whatever is killed: down ends what is left, exactly that, and the space comes up again. Two spaces side by side.
source "$(dirname "$0")/lib.sh"

worker='trap "" HUP; (exec -a left-behind sleep 1000) & sleep 1000 & echo here as $MEW_PARTICIPANT_ID; wait'
yaml() {
    cat <<YAML
space: {id: $1}
journal: {enabled: false}
participants:
  alice: {capabilities: [{kind: "*"}]}
  worker: {command: bash, args: [-c, '$worker'], auto_start: true}
  again: {command: bash, args: [-c, 'echo here; sleep 1000'], auto_start: true, restart_policy: always}
YAML
}
space game < <(yaml game)
game=$here
up
game_port=$port game_pids=$(jq -c '[.gateway, .agents[]]' .mew/pids.json)
until_true grep -qs here logs/worker.log
sleep 1000 &
foreign=$!
until_true grep -qzxF "HOME=$scratch" "/proc/$foreign/environ"
bystanders=$(left_running)

space lab < <(yaml lab)
for victim in gateway worker gateway; do
    up
    [[ $port != "$game_port" ]] || fail "both spaces are at port $port"
    until_true grep -qs 'here as worker' logs/worker.log
    gateway=$(jq .gateway .mew/pids.json) pid=$(jq ".$victim // .agents.$victim" .mew/pids.json)
    pids=$(jq -r '.gateway, .agents[]' .mew/pids.json)
    kill -9 "$pid"
    until_true dead "$pid"
    if [[ $victim == worker ]]; then
        alive "$gateway" || fail "the gateway went with its participant"
    fi
    down
    for pid in $pids; do
        dead "$pid" || fail "$pid still runs after $victim was killed"
    done
    same "$(left_running)" "$bystanders"
    : >logs/worker.log
done

# One that is to be started again is.
up
pid=$(jq .agents.again .mew/pids.json)
kill -9 "$pid"
again_anew() { local now; now=$(jq .agents.again .mew/pids.json) && [[ $now != "$pid" && $now != null ]] && alive "$now"; }
until_true again_anew
down
mew space down >"$scratch/down.out"
same "$(cat "$scratch/down.out")" 'the space is not running'
same "$(left_running)" "$bystanders"
alive $foreign || fail "a foreign process was stopped"
kill $foreign

# The other space has noticed nothing of all this.
same "$(jq -c '[.gateway, .agents[]]' "$game/.mew/pids.json")" "$game_pids"
curl -sf "localhost:$game_port/health" >/dev/null || fail "the other space is gone"
is ".[] | select(.spaceId == \"game\") | .port == $game_port" "$(mew space status --all --json)"
mew space down --space-dir "$game" >/dev/null
same "$(left_running)" ''
is '. == {}' "$(cat "$HOME/.mew/running-spaces.json")"
