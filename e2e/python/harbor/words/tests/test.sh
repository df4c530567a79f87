#!/bin/bash
[ "$(cat /srv/word)" = tide ] && [ "$(stat -c %U /srv/word)" = sailor ] &&
	echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
