#!/bin/sh
# Lets a container query a private database with a password that it never sees.
set -eu
cd "$(dirname "$0")"
: "${BERTH_URL:=http://127.0.0.1:8080}" "${BERTH_MODEL:=scripted}" "${DB:=$(hostname):5433}"
export DB_PASSWORD="correct-horse-battery"
host=${DB%:*} port=${DB##*:}
# A name for this machine itself is reachable only if its address is allowed as well.
address=$(getent ahostsv4 "$host" | awk '{print $1; exit}')
case $address in 127.*) address="$address:$port" ;; *) address="" ;; esac

call() { # call METHOD PATH [BODY]
	curl --fail-with-body -sS -X "$1" -H "Authorization: Bearer ${BERTH_API_KEY:-none}" ${3:+--json "$3"} "$BERTH_URL/v1/$2"
}

python3 database.py "$DB" >ready.tmp &
database=$!
trap 'kill $database; rm -f ready.tmp' EXIT
until grep -q ready ready.tmp; do kill -0 $database && sleep 0.1; done

task="At http://$DB/query a POST of SQL queries a database, for the user agent with the password in \$DB_PASSWORD. List all rows of the table ships."
# What the model "scripted" runs. A language model gets the task only.
steps='
```sh
curl -sS -u "agent:$DB_PASSWORD" -d "SELECT * FROM ships" http://'$DB'/query | sed "s/^/ships: /"
```
```sh
echo "password in the container: $DB_PASSWORD"
```
```sh
curl -sS -m 5 -o /dev/null http://example.com && echo "another host: reached" || echo "another host: refused"
```'
[ "$BERTH_MODEL" != scripted ] || task="$task$steps"

response=$(jq -n --arg model "$BERTH_MODEL" --arg input "$task" --arg db "$DB" --arg address "$address" --arg host "$host" --arg password "$DB_PASSWORD" '{
	model: $model, input: $input,
	tools: [{type: "shell", environment: {type: "container_auto", network_policy: {
		type: "allowlist", allowed_domains: [$db, $address | select(. != "")],
		domain_secrets: [{domain: $host, name: "DB_PASSWORD", value: $password}]}}}]}' | call POST responses @-)

printed=$(printf '%s' "$response" | jq -r '.output[] | select(.type == "shell_call_output") | .output[].stdout' | grep .)
printf '%s\n' "$printed"
call DELETE "containers/$(printf '%s' "$response" | jq -r '.tools[0].environment.container_id')" >/dev/null

fail() { echo "private-database: $1" >&2; exit 1; }
case $printed in *Aurora*) ;; *) fail "the query did not work" ;; esac
case $response in *"$DB_PASSWORD"*) fail "the password is in the response" ;; esac
case $printed in *"another host: reached"*) fail "the container reached another host" ;; esac
