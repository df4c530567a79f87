#!/bin/sh
# Prepares a container, snapshots it, deletes it, and starts others from the snapshot.
set -eu
: "${BERTH_URL:=http://127.0.0.1:8080}" "${BERTH_MODEL:=scripted}"

call() { # call METHOD PATH [BODY]
	curl --fail-with-body -sS -X "$1" -H "Authorization: Bearer ${BERTH_API_KEY:-none}" ${3:+--json "$3"} "$BERTH_URL/v1/$2"
}

box=$(call POST containers '{"name": "prepared"}' | jq -r .id)
echo "prepared: $(call POST "containers/$box/exec" '{"command": "printf \"#!/bin/sh\necho tool 1.0\n\" >tool && chmod +x tool && ./tool"}' | jq -r .stdout)"
snapshot=$(call POST "containers/$box/snapshots" '{"name": "with the tool"}' | jq -r .id)
call DELETE "containers/$box" >/dev/null
echo "snapshot $snapshot, 1 container deleted"
trap 'call DELETE snapshots/$snapshot >/dev/null' EXIT

again=$(call POST containers '{"name": "again", "berth": {"snapshot_id": "'"$snapshot"'"}}' | jq -r .id)
echo "restored: $(call POST "containers/$again/exec" '{"command": "./tool"}' | jq -er .stdout)"
call DELETE "containers/$again" >/dev/null

task="Run ./tool and show what it prints."
# What the model "scripted" runs. A language model gets the task only.
[ "$BERTH_MODEL" != scripted ] || task="$task
\`\`\`sh
./tool
\`\`\`"
response=$(jq -n --arg model "$BERTH_MODEL" --arg input "$task" --arg snapshot "$snapshot" '{model: $model, input: $input,
	tools: [{type: "shell", environment: {type: "container_auto", berth: {snapshot_id: $snapshot}}}]}' | call POST responses @-)
printf '%s' "$response" | jq -er '[.output[] | select(.type == "shell_call_output") | .output[].stdout] | join("") | "restored: " + .'
call DELETE "containers/$(printf '%s' "$response" | jq -r '.tools[0].environment.container_id')" >/dev/null
case $response in *"tool 1.0"*) ;; *) echo "restore-snapshot: the tool is not in the restored container" >&2; exit 1 ;; esac
