#!/bin/sh
# Has a model write a page and serve it in its container, and reads it from outside.
set -eu
: "${BERTH_URL:=http://127.0.0.1:8080}" "${BERTH_MODEL:=scripted}"

call() { # call METHOD PATH [BODY]
	curl --fail-with-body -sS -X "$1" -H "Authorization: Bearer ${BERTH_API_KEY:-none}" ${3:+--json "$3"} "$BERTH_URL/v1/$2"
}

task='Write index.html with the heading "Tides of Brest", and serve the directory on port 8000 in the background, with setsid.'
# What the model "scripted" runs. A language model gets the task only.
[ "$BERTH_MODEL" != scripted ] || task="$task"'
```sh
echo "<h1>Tides of Brest</h1>" >index.html
setsid -f python3 -m http.server 8000 >server.log 2>&1
until python3 -c "import urllib.request; urllib.request.urlopen(\"http://127.0.0.1:8000\")" 2>/dev/null; do sleep 0.1; done
```'
response=$(jq -n --arg model "$BERTH_MODEL" --arg input "$task" '{model: $model, input: $input,
	tools: [{type: "shell", environment: {type: "container_auto"}}]}' | call POST responses @-)
box=$(printf '%s' "$response" | jq -r '.tools[0].environment.container_id')
[ -n "${KEEP:-}" ] || trap 'call DELETE containers/$box >/dev/null' EXIT

page() { grep -o '<h1[^<]*</h1>' || { echo "web-page: the page is not there" >&2; exit 1; }; }
by_key=$(call GET "containers/$box/ports/8000/" | page)
echo "by key: $by_key"
link=$(call POST "containers/$box/ports/8000" | jq -r .url)
by_link=$(curl --fail-with-body -sS "$link" | page) # without a key
echo "by link: $by_link"
echo "open $link"
