#!/bin/sh
# Makes a template from an image, and uses it with and without a model.
set -eu
: "${BERTH_URL:=http://127.0.0.1:8080}" "${BERTH_MODEL:=scripted}" "${IMAGE:=debian:bookworm-slim}"

call() { # call METHOD PATH [BODY]
	curl --fail-with-body -sS -X "$1" -H "Authorization: Bearer ${BERTH_API_KEY:-none}" ${3:+--json "$3"} "$BERTH_URL/v1/$2"
}

# shellcheck disable=SC2086
berth image pull "$IMAGE" --name own ${PULL_FLAGS:-} >/dev/null
digest=$(call GET templates/own | jq -r .id)
echo "template own: $digest"

box=$(call POST containers '{"name": "own", "berth": {"template": "own"}}')
id=$(printf '%s' "$box" | jq -r .id)
trap 'call DELETE containers/$id >/dev/null' EXIT
[ "$(printf '%s' "$box" | jq -r .berth.template)" = "$digest" ] || { echo "own-image: the container has another template" >&2; exit 1; }
echo "exec: $(call POST "containers/$id/exec" '{"command": "echo own image"}' | jq -r .stdout)"

task='Print "own image" with echo.'
# What the model "scripted" runs. A language model gets the task only.
[ "$BERTH_MODEL" != scripted ] || task="$task
\`\`\`sh
echo own image
\`\`\`"
jq -n --arg model "$BERTH_MODEL" --arg input "$task" --arg id "$id" '{model: $model, input: $input,
	tools: [{type: "shell", environment: {type: "container_reference", container_id: $id}}]}' |
	call POST responses @- | jq -r '"response: " + (.output[-1].content[0].text)'
