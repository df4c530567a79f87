#!/bin/bash
got=$(python3 -c 'import urllib.request; print(urllib.request.urlopen("http://127.0.0.1:8000/tide.txt").read().decode())')
[ "$got" = "low water" ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
