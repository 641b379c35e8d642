# What every scenario begins with: a home of its own, spaces in it, and an end at which nothing may still run.
#
# A scenario is a user's script: mew, curl and jq. It is read by `source`, stops at the first thing that is wrong, and
# says in which line and what was expected. Must not know anything that is not in docs/command.md or docs/protocol.md.

set -euo pipefail
unset "${!MEW_@}" PORT SPACE TOKEN GATEWAY_LOGGING ENVELOPE_HISTORY CAPABILITY_DECISIONS

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
command -v mew >/dev/null || PATH="$repository/.venv/bin:$PATH"
scratch=$(mktemp -d)
export HOME="$scratch"
patience=${SCENARIO_PATIENCE:-20}
spaces=()
cd "$scratch"

# The end ---------------------------------------------------------------------------------------------------------

fail() {
    printf 'FAILED at %s line %s: %s\n' "$(basename "$0")" "$(line_of_scenario)" "$*" >&2
    exit 1
}

line_of_scenario() {
    local depth
    for ((depth = 0; depth < ${#BASH_SOURCE[@]}; depth++)); do
        if [[ ${BASH_SOURCE[depth]} == "$0" ]]; then
            echo "${BASH_LINENO[depth - 1]}"
            return
        fi
    done
}

# Processes that were started with this scenario's home and are not the scenario itself, nor what it is running now.
left_running() {
    local found pid
    found=$(grep -lzxF "HOME=$scratch" /proc/[0-9]*/environ 2>/dev/null | tr -cd '0-9\n') || true
    for pid in $found; do
        [[ $pid == "$$" || $pid == "$BASHPID" ]] || dead "$pid" || echo "$pid"
    done
}

finish() {
    local code=$? directory pid
    trap - EXIT ERR
    set +e
    [[ $code == 0 ]] || tell_logs
    for directory in "${spaces[@]}"; do
        [[ ! -e $directory/.mew/pids.json ]] || mew space down --space-dir "$directory" >/dev/null
    done
    for pid in $(jobs -p); do
        kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
    done
    for pid in $(left_running); do
        echo "FAILED: process $pid still ran at the end: $(tr '\0' ' ' <"/proc/$pid/cmdline")" >&2
        kill -9 "$pid"
        code=1
    done
    rm -rf "$scratch"
    [[ $code == 0 ]] && echo "ok: $(basename "$0" .sh)"
    exit "$code"
}

tell_logs() {
    local log
    for log in "$scratch"/*/logs/*.log; do
        [[ -s $log ]] || continue
        echo "--- ${log#"$scratch"/}" >&2
        tail -n 8 "$log" >&2
    done
}

trap finish EXIT
trap 'fail "$BASH_COMMAND ended with $?"' ERR
trap 'exit 143' TERM
set -o errtrace

# Spaces ----------------------------------------------------------------------------------------------------------

# space NAME < space.yaml: a directory with a space in it, which is the one that is meant from here on.
space() {
    mkdir "$scratch/$1"
    cat >"$scratch/$1/space.yaml"
    enter "$scratch/$1"
}

enter() {
    here=$1
    spaces+=("$here")
    cd "$here"
}

# up [options]: start it in the background on a free port.
up() {
    mew space up --space-dir "$here" --port 0 --detach "$@" >"$scratch/up.out"
    port=$(jq .port "$here/.mew/pids.json")
    curl -sf "localhost:$port/health" | jq -e '.status == "ok"' >/dev/null || fail "no health at port $port"
}

down() {
    mew space down --space-dir "$here" >"$scratch/down.out"
    [[ ! -e $here/.mew/pids.json ]] || fail "pids.json is still there"
}

token() {
    cat "$here/.mew/tokens/$1.token"
}

# Speaking --------------------------------------------------------------------------------------------------------

# post WHO ENVELOPE: send it over HTTP, and print the answer; it must be accepted.
post() {
    local status
    status=$(asked "$1" "$2")
    [[ $status == 200 ]] || fail "$1 was refused $2 with $status: $(cat "$scratch/answer")"
    cat "$scratch/answer"
}

# refused STATUS ERROR WHO ENVELOPE: send it; it must not be taken, for this reason.
refused() {
    local status
    status=$(asked "$3" "$4")
    [[ $status == "$1" ]] || fail "$3 was to be answered $1 for $4, not $status: $(cat "$scratch/answer")"
    [[ $(jq -r .error "$scratch/answer") == "$2" ]] || fail "not refused with $2: $(cat "$scratch/answer")"
}

asked() {
    curl -s -o "$scratch/answer" -w '%{http_code}' -H "Authorization: Bearer ${bearer:-$(token "$1")}" \
        -H 'Content-Type: application/json' -d "$2" "localhost:$port/participants/$1/messages"
}

chat() {
    post "$1" "$(jq -nc --arg text "$2" '{kind: "chat", payload: {text: $text}}')" | jq -r .id
}

# Looking ---------------------------------------------------------------------------------------------------------

# seen FILE FILTER: wait until a line of a JSON lines file passes the jq filter, and print the first that does.
seen() {
    local deadline=$((SECONDS + patience)) found
    while :; do
        found=$(first "$1" "$2")
        [[ -z $found ]] || break
        ((SECONDS < deadline)) || fail "no line of ${1#"$scratch"/} is $2; last: $(tail -n 3 "$1" 2>&1)"
        sleep 0.05
    done
    printf '%s\n' "$found"
}

# unseen FILE FILTER: there is no such line; who asks has made sure that it would be there by now.
unseen() {
    local found
    found=$(first "$1" "$2")
    [[ -z $found ]] || fail "${1#"$scratch"/} has what it may not have: $found"
}

first() {
    [[ ! -e $1 ]] || jq -cR "fromjson? | select($2)" "$1" | sed -n 1p
}

# until_true COMMAND…: wait until it succeeds.
until_true() {
    local deadline=$((SECONDS + patience))
    until "$@"; do
        ((SECONDS < deadline)) || fail "it never came to: $*"
        sleep 0.05
    done
}

# is FILTER JSON: the jq filter holds of this value.
is() {
    jq -e "$1" >/dev/null <<<"$2" || fail "$1 does not hold of $2"
}

same() {
    [[ $1 == "$2" ]] || fail "got '$1', expected '$2'"
}

has() {
    [[ $1 == *"$2"* ]] || fail "'$2' is not in: $1"
}

alive() {
    [[ -e /proc/$1 ]] && ! grep -q '^State:.*Z' "/proc/$1/status" 2>/dev/null
}

dead() {
    ! alive "$1"
}

# fails CODE COMMAND…: it ends with this exit code and one line on standard error, which is left in $said.
fails() {
    local wanted=$1 code=0
    shift
    "$@" >"$scratch/out" 2>"$scratch/err" </dev/null || code=$?
    said=$(cat "$scratch/err")
    [[ $code == "$wanted" ]] || fail "'$*' ended with $code, not $wanted: $said"
    [[ $(wc -l <"$scratch/err") == 1 ]] || fail "'$*' did not say why in one line: $said"
}
