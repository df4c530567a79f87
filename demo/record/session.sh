berth run --model scripted 'What is in this container?
```sh
uname -sr; id -un; python3 -c "import pandas; print(\"pandas\", pandas.__version__)"
```
```sh
echo "42" | tee answer.txt
```'

berth create box

berth exec box sh -c 'echo kept >note.txt; curl -sS https://example.com'

berth fork box --name copy >/dev/null

berth exec copy cat note.txt

berth ps

berth rm --all --yes
