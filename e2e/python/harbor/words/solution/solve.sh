#!/bin/bash
echo "$TEXT" | tr ' ' '\n' | sort | uniq -c | sort -rn | awk 'NR == 1 { print $2; }' > word
