"""Open Terminal, run beside Berth: both get the same requests, as Open WebUI sends them."""

import io
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile

import httpx
from websockets.sync.client import connect

from berth import job, main

KEY = "key-of-open-terminal"
here = os.environ["OPENAI_BASE_URL"].removesuffix("/v1") + "/open-terminal"


def shape(value):
    """Return what a value is made of: the names of its fields and the types of their values."""
    if isinstance(value, dict):
        return {k: shape(v) for k, v in sorted(value.items())}
    if isinstance(value, list):
        return [shape(v) for v in value[:1]]
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


class Pair:
    """Two servers with the same files in the directory of a user."""

    def __init__(self, theirs):
        headers = {"X-User-Id": "user1", "X-Session-Id": "chat1"}
        self.sides = [httpx.Client(base_url=theirs, headers=headers | {"Authorization": "Bearer " + KEY}, timeout=60),
                      httpx.Client(base_url=here, headers=headers, timeout=60)]
        self.homes = [side.get("/files/cwd").json()["home"] for side in self.sides]
        self.count = 0

    def both(self, method, path, ids=("", ""), differs=(), **options):
        """Send a request to both. Their statuses and the shapes of their JSON must be equal, but for some fields."""
        self.count += 1
        answers = [side.request(method, path.replace("{id}", ident).replace("{home}", home), **options)
                   for side, ident, home in zip(self.sides, ids, self.homes)]
        theirs, ours = answers
        assert theirs.status_code == ours.status_code, (method, path, theirs.status_code, theirs.text, ours.text)
        kinds = [a.headers.get("content-type", "").partition(";")[0] for a in answers]
        assert kinds[0] == kinds[1], (method, path, kinds)
        if kinds[0] != "application/json":
            return answers
        bodies = [a.json() for a in answers]
        shapes = [shape(b) for b in bodies]
        for s in shapes:
            for name in differs:
                assert name in s, (path, name, s)
                s.pop(name)
        if theirs.status_code == 422:  # the texts and the inputs are those of a library
            shapes = [sorted(s) for s in shapes]
        assert shapes[0] == shapes[1], (method, path, bodies)
        return bodies


def start():
    """Start Open Terminal and return its URL."""
    home = tempfile.mkdtemp()
    env = os.environ | {"HOME": home, "OPEN_TERMINAL_API_KEY": KEY}
    process = subprocess.Popen([sys.executable, "-m", "open_terminal", "run", "--host", "127.0.0.1", "--port", "0"],
                               env=env, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in process.stdout:
        if found := re.search(r"running on (http://127\.0\.0\.1:[0-9]+)", line):
            # What it prints later fits into the pipe.
            return process, found[1]
    raise AssertionError("Open Terminal did not start")


process, url = start()
pair = Pair(url)


@job("health, features, directory and errors")
def basics():
    for path in ("/health", "/system", "/files/cwd", "/skills", "/execute/none/status"):
        pair.both("GET", path)
    theirs, ours = pair.both("GET", "/api/config")
    assert theirs["features"]["terminal"] and ours["features"]["terminal"]
    for side in pair.sides:
        assert side.get("/nothing").status_code == 404
        assert side.put("/files/read").status_code == 405
    theirs, ours = ({(m, p): o for p, item in side.get("/openapi.json").json()["paths"].items() for m, o in item.items()}
                    for side in pair.sides)
    assert theirs.keys() == ours.keys(), theirs.keys() ^ ours.keys()
    for route, operation in theirs.items():
        assert operation["operationId"] == ours[route]["operationId"], route
        names = [{(p["name"], p["in"], p.get("required", False)) for p in o.get("parameters", [])}
                 for o in (operation, ours[route])]
        assert names[0] == names[1], (route, names)


@job("commands, their output, input and end")
def commands():
    ids = [b["id"] for b in pair.both("POST", "/execute?wait=30", json={"command": "echo out; exit 3"},
                                      differs=["log_path"])]
    for b in pair.both("GET", "/execute/{id}/status?wait=30", ids, differs=["log_path"]):
        assert (b["status"], b["exit_code"], b["output"], b["next_offset"]) == (
            "done", 3, [{"type": "output", "data": "out\r\n"}], 1), b
    pair.both("POST", "/execute/{id}/input", ids, json={"input": "x"})
    ids = [b["id"] for b in pair.both("POST", "/execute?wait=0", json={"command": "read a; echo got $a"},
                                      differs=["log_path"])]
    pair.both("POST", "/execute/{id}/input", ids, json={"input": "x\\n"})
    for b in pair.both("GET", "/execute/{id}/status?wait=30&offset=0&tail=null", ids, differs=["log_path"]):
        assert "got x\r\n" in "".join(o["data"] for o in b["output"]), b
    ids = [b["id"] for b in pair.both("POST", "/execute", json={"command": "exec sleep 1000"}, differs=["log_path"])]
    pair.both("DELETE", "/execute/{id}?force=true", ids)
    for b in pair.both("GET", "/execute/{id}/status", ids, differs=["log_path"]):
        assert (b["status"], b["exit_code"]) == ("killed", -9), b
    for side in pair.sides:
        assert [p["status"] for p in side.get("/execute").json()] == ["done", "done", "killed"]
    for body in ({}, [], {"command": 1}):
        pair.both("POST", "/execute", json=body)
    for query in ("wait=301", "wait=x", "tail=0"):
        pair.both("POST", "/execute?" + query, json={"command": "true"})


@job("files: write, read, edit, list, move, delete, upload, archive")
def files():
    for name, text in (("src/a.py", "one\ntwo\nthree\n"), ("src/b.txt", "two\n"), ("src/.hidden", "two\n")):
        pair.both("POST", "/files/write", json={"path": name, "content": text})
    for path in ("/files/list?directory=src", "/files/read?path=src/a.py", "/files/read?path=src/a.py&start_line=2&end_line=2",
                 "/files/read?path=none", "/files/read", "/files/read?path=src/a.py&start_line=0", "/files/list?directory=none",
                 "/files/display?path=src/a.py", "/files/display?path=none", "/files/view?path=none",
                 "/files/read?path=/bin/sh", "/skills/read?name=none"):
        pair.both("GET", path)
    for change in ({"target": "two", "replacement": "deux"}, {"target": "none", "replacement": ""},
                   {"target": "e", "replacement": "f"}, {"target": "e", "replacement": "f", "allow_multiple": True},
                   {"target": "o", "replacement": "O", "start_line": 1, "end_line": 1}):
        pair.both("POST", "/files/replace", json={"path": "src/a.py", "replacements": [change]})
    contents = [b["content"] for b in pair.both("GET", "/files/read?path=src/a.py")]
    assert contents[0] == contents[1], contents
    assert len({a.content for a in pair.both("GET", "/files/view?path=src/b.txt")}) == 1
    assert len({a.content for a in pair.both("GET", "/files/serve{home}/src/b.txt")}) == 1
    pair.both("POST", "/files/compare", json={"original": "src/a.py", "revised": "src/b.txt"})
    pair.both("POST", "/files/compare", json={"original": "src/a.py", "revised": "none"})
    pair.both("POST", "/files/mkdir", json={"path": "new/deep"})
    pair.both("POST", "/files/move", json={"source": "src/b.txt", "destination": "new/b.txt"})
    pair.both("POST", "/files/move", json={"source": "src/a.py", "destination": "new/b.txt"})
    pair.both("POST", "/files/move", json={"source": "none", "destination": "x"})
    pair.both("POST", "/files/move", json={"source": "src/a.py", "destination": "none/x"})
    pair.both("POST", "/files/upload?directory=new", files={"file": ("up.bin", io.BytesIO(b"\0\1" * 1000))})
    pair.both("POST", "/files/upload?directory=new", files={"other": ("up.bin", io.BytesIO(b""))})
    for a in pair.both("POST", "/files/archive", json={"paths": ["new", "src/a.py"]}):
        names = sorted(n for n in zipfile.ZipFile(io.BytesIO(a.content)).namelist())
        assert names == ["a.py", "new/b.txt", "new/up.bin"], names
    for paths in ([], ["none"]):
        pair.both("POST", "/files/archive", json={"paths": paths})
    pair.both("DELETE", "/files/delete?path=new")
    pair.both("DELETE", "/files/delete?path=new")
    pair.both("POST", "/files/cwd", json={"path": "src"})
    pair.both("POST", "/files/cwd", json={"path": "none"})
    assert all(a["content"] == contents[0] for a in pair.both("GET", "/files/read?path=a.py"))
    for side in pair.sides:
        side.post("/files/cwd", json={"path": "."})


@job("searches by name, pattern and content")
def searches():
    pair.both("POST", "/files/write", json={"path": "find/b.txt", "content": "two\n"})
    pair.both("POST", "/files/write", json={"path": "find/sub/two.txt", "content": "three\n"})
    for path in ("grep?query=t.o", "grep?query=t.o&regex=false", "grep?query=TWO&case_insensitive=true", "grep?query=(",
                 "grep?query=two&match_per_line=false&include=*.txt&include=*.py", "grep?query=two&max_results=501",
                 "grep", "grep?query=x&path=none", "glob?pattern=*.txt", "glob?pattern=*&type=directory",
                 "glob?pattern=*&exclude=*.txt", "glob?pattern=*&type=x", "search?query=two", "search?limit=2",
                 "search?query=b&type=file", "matches?query=two", "matches?query=two&limit=1", "matches?query=%20"):
        query = path if "path=" in path or "?" not in path else path + "&path=find"
        bodies = pair.both("GET", "/files/" + query)
        for field in ("matches", "results"):
            if field in bodies[0]:
                found = [len(b[field]) for b in bodies]
                assert found[0] == found[1], (path, bodies)


@job("terminals and ports")
def terminals():
    pair.both("GET", "/api/terminals/none")
    pair.both("GET", "/api/terminals/user/output")
    pair.both("POST", "/api/terminals/user/input", json={"input": "x"})
    ids = [b["id"] for b in pair.both("POST", "/api/terminals")]
    pair.both("GET", "/api/terminals")
    pair.both("GET", "/api/terminals/{id}", ids)
    for side, ident in zip(pair.sides, ids):
        address = str(side.base_url).rstrip("/").replace("http", "ws", 1) + "/api/terminals/" + ident
        headers = {n: side.headers[n] for n in ("X-User-Id", "X-Session-Id")}
        with connect(address, additional_headers=headers) as ws:
            ws.send(json.dumps({"type": "auth", "token": KEY if side is pair.sides[0] else ""}))
            ws.send(json.dumps({"type": "resize", "cols": 101, "rows": 31}))
            ws.send(b"stty size; echo a''b\n")
            seen = b""
            while b"31 101" not in seen or b"ab" not in seen:
                data = ws.recv(timeout=60)
                assert isinstance(data, bytes)
                seen += data
            assert "31 101" in side.get("/api/terminals/user/output").json()["output"]
            assert side.post("/api/terminals/user/input", json={"input": "exit\n"}).json() == {"status": "ok"}
            for _ in ws:
                pass
    ids = [b["id"] for b in pair.both("POST", "/api/terminals")]
    pair.both("DELETE", "/api/terminals/{id}", ids)
    pair.both("DELETE", "/api/terminals/{id}", ids)
    pair.both("GET", "/ports")
    serve = ("python3 -uc 'import http.server as h; s = h.HTTPServer((\"127.0.0.1\", 0), h.SimpleHTTPRequestHandler); "
             "print(\"port\", s.server_port, flush=True); s.serve_forever()'")
    for side in pair.sides:
        ident, seen = side.post("/execute", json={"command": serve}).json()["id"], ""
        while not (found := re.search(r"port ([0-9]+)\r\n", seen)):
            seen = "".join(o["data"] for o in side.get(f"/execute/{ident}/status?wait=0.1").json()["output"])
        # Open Terminal forgets a port's owner, and then the port, if any process of the machine ends while it looks.
        for _ in range(1 if side is pair.sides[0] else 100):
            listed = [p for p in side.get("/ports").json()["ports"] if p["port"] == int(found[1])]
            if listed:
                break
        assert listed and set(listed[0]) == {"port", "pid", "process"}, listed
        page = side.get(f"/proxy/{found[1]}/")
        assert page.status_code == 200 and "find/" in page.text, page.text
        side.delete(f"/execute/{ident}?force=true")
    for path in ("/proxy/0/", "/proxy/x/", "/proxy/9/"):
        pair.both("GET", path)


try:
    main()
finally:
    process.terminate()
    print(f"{pair.count} requests were sent to both", file=sys.stderr)
