# The part of the door that runs in the container: searches and changes of files. It reads a request in JSON from its
# standard input and prints an answer in JSON, so that every path means what it means to the container's own programs.
import fnmatch, json, os, re, shutil, stat, sys

SKIPPED = ("/proc", "/sys", "/dev")  # files there have no end, or no content
MOST_TEXT = 8 << 20  # bytes of text in an answer
MOST_SEARCHED = 1 << 20  # bytes of a file that a search by content reads
SKILL_DIRS = (".agents/skills", ".cptr/skills", ".claude/skills", ".codex/skills")
BREAK = re.compile("\r\n|[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")


class Refused(Exception):
    def __init__(self, status, detail):
        super().__init__(detail)
        self.status, self.detail = status, detail


def shown(path):
    return path.encode("utf-8", "replace").decode("utf-8", "replace")


def regular(path):
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def must(condition, status, detail):
    if not condition:
        raise Refused(status, detail)


def walk(root, hidden=True):
    for directory, dirs, files in os.walk(root):
        dirs[:] = sorted(d for d in dirs if (hidden or not d.startswith(".")) and
                         os.path.join(directory, d) not in SKIPPED)
        yield directory, dirs, sorted(f for f in files if hidden or not f.startswith("."))


def entries(root, hidden):
    for directory, dirs, files in walk(root, hidden):
        for name, kind in sorted([(d, "directory") for d in dirs] + [(f, "file") for f in files]):
            yield os.path.join(directory, name), name, kind


def list_directory(q):
    path = q["path"]
    must(os.path.isdir(path), 404, "Directory not found")
    found = []
    for name in sorted(os.listdir(path)):
        full = os.path.join(path, name)
        try:
            s = os.stat(full)
        except OSError:
            continue
        found.append({"name": shown(name), "type": "directory" if stat.S_ISDIR(s.st_mode) else "file",
                      "size": s.st_size, "modified": s.st_mtime, "writable": os.access(full, os.W_OK)})
        must(len(found) <= 100000, 413, "The directory has more than 100,000 entries. Use glob_search.")
    return {"dir": path, "writable": os.access(path, os.W_OK), "entries": found}


def examine(q):
    import mimetypes
    path = q["path"]
    try:
        s = os.stat(path)
    except OSError:
        return {"exists": False, "file": False, "directory": False, "size": 0, "type": ""}
    return {"exists": True, "file": stat.S_ISREG(s.st_mode), "directory": stat.S_ISDIR(s.st_mode), "size": s.st_size,
            "type": mimetypes.guess_type(path)[0] or "application/octet-stream"}


def read(q):
    path, first, last = q["path"], q.get("start_line") or 1, q.get("end_line")
    must(regular(path), 404, "File not found")
    total, size, parts = 0, 0, []
    try:
        with open(path, encoding="utf-8") as source:
            rest = ""
            while True:
                chunk = source.read(1 << 16)
                text = rest + chunk
                pieces, at = [], 0
                for m in BREAK.finditer(text):
                    pieces.append(text[at:m.end()])
                    at = m.end()
                rest = text[at:]
                if not chunk and rest:
                    pieces.append(rest)
                must(len(rest) <= MOST_TEXT, 413, "The file has a line of more than 8 MiB. Use run_command.")
                for piece in pieces:
                    total += 1
                    if total >= first and (last is None or total <= last):
                        size += len(piece.encode("utf-8", "replace"))
                        must(size <= MOST_TEXT, 413,
                             "The text is larger than 8 MiB. Read a part of it with start_line and end_line.")
                        parts.append(piece)
                if not chunk:
                    break
    except UnicodeDecodeError:
        return {"binary": examine(q)}
    return {"path": path, "content": "".join(parts), "total_lines": total}


def write(q):
    path = q["path"]
    if os.path.dirname(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    must(not os.path.exists(path) or regular(path), 400, "Not a regular file: " + path)
    with open(path, "w", encoding="utf-8", newline="") as out:
        out.write(q["content"])
    return {"path": path, "size": len(q["content"].encode("utf-8"))}


def mkdir(q):
    os.makedirs(q["path"], exist_ok=True)
    return {"path": q["path"]}


def delete(q):
    path = q["path"]
    must(os.path.lexists(path), 404, "Path not found")
    directory = os.path.isdir(path) and not os.path.islink(path)
    shutil.rmtree(path) if directory else os.remove(path)
    return {"path": path, "type": "directory" if directory else "file"}


def move(q):
    source, destination = q["source"], q["destination"]
    must(os.path.lexists(source), 404, "Source path not found")
    must(os.path.isdir(os.path.dirname(destination)), 400, "Destination parent directory not found")
    must(not os.path.lexists(destination), 409, "Destination already exists")
    shutil.move(source, destination)
    return {"source": source, "destination": destination}


def bounds(text, first, last):
    starts = [0] + [m.end() for m in BREAK.finditer(text)]
    begin = starts[first - 1] if (first or 1) <= len(starts) else len(text)
    end = starts[last] if last and last < len(starts) else len(text)
    return begin, max(begin, end)


def replace(q):
    path = q["path"]
    must(regular(path), 404, "File not found")
    must(os.path.getsize(path) <= MOST_TEXT, 413, "The file is larger than 8 MiB. Change it with run_command.")
    try:
        with open(path, encoding="utf-8", newline="") as source:
            text = source.read()
    except UnicodeDecodeError:
        raise Refused(400, "The file is not text in UTF-8")
    for r in q["replacements"]:
        begin, end = bounds(text, r.get("start_line") or 1, r.get("end_line"))
        region = text[begin:end]
        count = region.count(r["target"]) if r["target"] else 0
        must(count, 400, "Target string not found: %r" % r["target"][:100])
        must(count == 1 or r.get("allow_multiple"), 400,
             "Found %d occurrences of target string but allow_multiple is false" % count)
        must(len(text) + count * (len(r["replacement"]) - len(r["target"])) <= MOST_TEXT, 413,
             "The file would be larger than 8 MiB.")
        text = text[:begin] + region.replace(r["target"], r["replacement"]) + text[end:]
    return write({"path": path, "content": text})


def grep(q):
    target, most, found = q["path"], q["max_results"], []
    must(os.path.exists(target), 404, "Search path not found")
    flags = re.IGNORECASE if q["case_insensitive"] else 0
    try:
        pattern = re.compile(q["query"] if q["regex"] else re.escape(q["query"]), flags)
    except (re.error, RecursionError, OverflowError) as e:
        raise Refused(400, "Invalid regex: %s" % e)

    def files():
        if regular(target):
            yield target
            return
        for directory, _, names in walk(target):
            for name in names:
                if not q["include"] or any(fnmatch.fnmatch(name, g) for g in q["include"]):
                    yield os.path.join(directory, name)

    size = 0
    for path in files():
        if not regular(path):
            continue
        try:
            with open(path, encoding="utf-8") as source:
                number = 0
                while True:
                    line = source.readline(MOST_TEXT)
                    if not line:
                        break
                    number += 1
                    if not pattern.search(line):
                        continue
                    content = line.rstrip("\r\n")
                    size += len(content)
                    if q["match_per_line"]:
                        found.append({"file": shown(path), "line": number, "content": content})
                    else:
                        found.append({"file": shown(path)})
                    if len(found) >= most or size > MOST_TEXT // 2:
                        return {"query": q["query"], "path": target, "matches": found, "truncated": True}
                    if not q["match_per_line"]:
                        break
        except (UnicodeDecodeError, OSError):
            continue
    return {"query": q["query"], "path": target, "matches": found, "truncated": False}


def glob(q):
    target, most, found = q["path"], q["max_results"], []
    must(os.path.isdir(target), 404, "Search directory not found")
    for path, name, kind in entries(target, True):
        relative = os.path.relpath(path, target)
        if q["type"] not in ("any", kind) or not (fnmatch.fnmatch(name, q["pattern"]) or
                                                  fnmatch.fnmatch(relative, q["pattern"])):
            continue
        if any(fnmatch.fnmatch(name, g) or fnmatch.fnmatch(relative, g) for g in q["exclude"] or ()):
            continue
        try:
            s = os.stat(path)
        except OSError:
            continue
        found.append({"path": shown(relative), "type": kind, "size": s.st_size, "modified": s.st_mtime})
        if len(found) >= most:
            break
    return {"pattern": q["pattern"], "path": target, "matches": found, "truncated": len(found) >= most}


def rank(name, relative, query):
    for n, hit in enumerate((name == query, name.startswith(query), query in name, query in relative)):
        if hit:
            return n
    return 4


def search(q):
    target, query, found = q["path"], q["query"].strip().lower(), []
    must(os.path.isdir(target), 404, "Search directory not found")
    for path, name, kind in entries(target, q["show_hidden"]):
        if q["type"] not in ("any", kind) or query not in name.lower():
            continue
        try:
            s = os.stat(path)
        except OSError:
            continue
        found.append((min(rank(name.lower(), "", query), 2), len(name), os.path.relpath(path, target).lower(),
                      {"path": shown(path), "name": shown(name), "type": kind, "size": s.st_size,
                       "modified": s.st_mtime}))
    found.sort(key=lambda f: f[:3])
    return {"results": [f[3] for f in found[:q["limit"]]]}


def content_matches(path, query):
    found = []
    if os.path.islink(path) or not regular(path) or os.path.getsize(path) > MOST_SEARCHED:
        return found
    with open(path, "rb") as source:
        data = source.read(MOST_SEARCHED)
    if b"\0" in data[:8192]:
        return found
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        at = line.lower().find(query)
        if at >= 0:
            found.append({"line": number, "column": len(line[:at].encode("utf-16-le")) // 2 + 1, "text": line[:4096]})
            if len(found) == 3:
                break
    return found


def matches(q):
    target, query, found = q["path"], q["query"].strip().lower(), []
    must(query, 400, "Query must not be blank")
    must(os.path.isdir(target), 404, "Search directory not found")
    for path, name, kind in entries(target, q["show_hidden"]):
        relative = os.path.relpath(path, target)
        score = rank(name.lower(), relative.lower(), query)
        try:
            lines = content_matches(path, query) if kind == "file" else []
        except OSError:
            lines = []
        if score < 4 or lines:
            found.append((score, len(relative), relative.lower(), len(found),
                          {"path": shown(path), "relative_path": shown(relative), "name": shown(name), "type": kind,
                           "name_match": score < 4, "content_matches": lines}))
    found.sort(key=lambda f: f[:4])
    end = q["offset"] + q["limit"]
    return {"results": [f[4] for f in found[q["offset"]:end]], "next_offset": end if len(found) > end else None}


def lines_of(path):
    must(regular(path), 404, "%s: File not found." % os.path.basename(path))
    must(os.path.getsize(path) <= MOST_TEXT, 422, "%s: File exceeds the 8 MiB comparison limit." %
         os.path.basename(path))
    try:
        with open(path, encoding="utf-8-sig", newline=None) as source:
            lines = source.read().splitlines()
    except UnicodeDecodeError:
        raise Refused(422, "%s: Unsupported binary file or text encoding." % os.path.basename(path))
    must(len(lines) <= 50000, 422, "%s: The text has more than 50,000 lines." % os.path.basename(path))
    return lines


def segments(a, b):
    import difflib
    if max(len(a), len(b)) > 4096:
        return [{"text": a, "changed": False}], [{"text": b, "changed": False}]
    left, right = (re.findall(r"\w+|\s+|[^\w\s]", s) for s in (a, b))
    out = [], []
    for tag, i, j, k, l in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        for words, side in ((left[i:j], out[0]), (right[k:l], out[1])):
            if words:
                side.append({"text": "".join(words), "changed": tag != "equal"})
    return out


def compare(q):
    import difflib
    a, b = lines_of(q["original"]), lines_of(q["revised"])
    key = (lambda s: re.sub(r"\s+", "", s)) if q["ignore_whitespace"] else (lambda s: s)
    matcher = difflib.SequenceMatcher(None, [key(s) for s in a], [key(s) for s in b], autojunk=True)
    hunks, added, removed = [], 0, 0
    for group in matcher.get_grouped_opcodes(3):
        lines = []
        for tag, i, j, k, l in group:
            if tag == "equal":
                for x, y in zip(range(i, j), range(k, l)):
                    lines.append({"type": "context", "oldNumber": x + 1, "newNumber": y + 1, "content": a[x],
                                  "revisedContent": b[y], "segments": [{"text": a[x], "changed": False}]})
                continue
            old = [{"type": "removed", "oldNumber": x + 1, "newNumber": None, "content": a[x],
                    "segments": [{"text": a[x], "changed": True}]} for x in range(i, j)]
            new = [{"type": "added", "oldNumber": None, "newNumber": y + 1, "content": b[y],
                    "segments": [{"text": b[y], "changed": True}]} for y in range(k, l)]
            for o, n in zip(old, new):
                o["segments"], n["segments"] = segments(o["content"], n["content"])
            lines += old + new
            removed, added = removed + len(old), added + len(new)
        i, j, k, l = group[0][1], group[-1][2], group[0][3], group[-1][4]
        hunks.append({"header": "@@ -%d,%d +%d,%d @@" % (i + (j > i), j - i, k + (l > k), l - k), "lines": lines})
    about = [{"path": q[n], "name": os.path.basename(q[n]), "notices": []} for n in ("original", "revised")]
    return {"original": about[0], "revised": about[1], "additions": added, "deletions": removed, "hunks": hunks}


def frontmatter(text):
    if not text.startswith("---\n") or "\n---" not in text[4:]:
        return {}, text.strip()
    head, _, body = text[4:].partition("\n---")
    fields, name = {}, ""
    for line in head.splitlines():
        if line[:1] in (" ", "\t") and name and fields[name] is not None:
            fields[name] = (fields[name] + " " + line.strip()).strip()
        elif ":" in line and not line.startswith("#"):
            name, _, value = line.partition(":")
            name, value = name.strip(), value.strip()
            fields[name] = "" if value in (">", "|", ">-", "|-") else value.strip("\"'")
    return fields, body.partition("\n")[2].strip()


def skill_files(home):
    from urllib.parse import quote
    seen = set()
    for root in (os.path.join(home, d) for d in SKILL_DIRS):
        if not os.path.isdir(root):
            continue
        for name in sorted(os.listdir(root)):
            path = os.path.join(root, name, "SKILL.md")
            if name.startswith(".") or not regular(path) or os.path.getsize(path) > MOST_SEARCHED:
                continue
            with open(path, encoding="utf-8", errors="replace") as source:
                fields, body = frontmatter(source.read())
            title, description = fields.get("name") or name, (fields.get("description") or "").strip()
            if description and title not in seen:
                seen.add(title)
                yield {"id": "terminal:" + quote(title, safe=""), "name": title, "description": description[:1024],
                       "location": path, "scope": "global", "source": "terminal"}, body


def skills(q):
    return [s for s, _ in skill_files(q["home"])]


def read_skill(q):
    for skill, body in skill_files(q["home"]):
        if skill["name"] != q["name"]:
            continue
        directory, resources = os.path.dirname(skill["location"]), []
        for path, name, kind in entries(directory, False):
            if kind == "file" and name != "SKILL.md" and len(resources) < 200:
                resources.append(shown(os.path.relpath(path, directory)))
        return dict(skill, content=body, resources=resources)
    raise Refused(404, "Skill not found")


def owners():
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            for fd in os.listdir("/proc/%s/fd" % pid):
                link = os.readlink("/proc/%s/fd/%s" % (pid, fd))
                if link.startswith("socket:["):
                    found.setdefault(link[8:-1], int(pid))
        except OSError:
            continue
    return found


def ports(q):
    found, by = {}, None
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as source:
                rows = [line.split() for line in source][1:]
        except OSError:
            continue
        for row in rows:
            if len(row) < 10 or row[3] != "0A":
                continue
            port = int(row[1].rpartition(":")[2], 16)
            by = owners() if by is None else by
            pid, name = by.get(row[9]), None
            if pid:
                try:
                    with open("/proc/%d/comm" % pid) as source:
                        name = source.read().strip()
                except OSError:
                    pass
            if port and not found.get(port, {}).get("pid"):
                found[port] = {"port": port, "pid": pid, "process": name}
    return {"ports": [found[p] for p in sorted(found)][:1000]}


def archive(q, out):
    import zipfile
    for path in q["paths"]:
        must(os.path.exists(path), 404, "Path not found: " + path)
    name = os.path.basename(q["paths"][0].rstrip("/")) if len(q["paths"]) == 1 else "download"
    out.write(json.dumps({"status": 200, "body": {"name": shown(name) or "archive"}}).encode() + b"\n")
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as z:
        for target in q["paths"]:
            if regular(target):
                files = [(target, os.path.basename(target))]
            else:
                base = os.path.basename(target.rstrip("/")) or "dir"
                files = ((os.path.join(d, f), os.path.join(base, os.path.relpath(os.path.join(d, f), target)))
                         for d, _, names in walk(target) for f in names)
            for full, inside in files:
                if regular(full):
                    try:
                        z.write(full, inside)
                    except OSError:
                        continue


def main():
    out = sys.stdout.buffer
    try:
        q = json.load(sys.stdin.buffer)
        if q["do"] == "archive":
            archive(q, out)
            return
        answer = {"status": 200, "body": TASKS[q["do"]](q)}
    except Refused as e:
        answer = {"status": e.status, "body": {"detail": e.detail}}
    except PermissionError as e:
        answer = {"status": 403, "body": {"detail": str(e)}}
    except OSError as e:
        answer = {"status": 507 if e.errno in (28, 122) else 400, "body": {"detail": str(e)}}
    except (ValueError, MemoryError, RecursionError) as e:
        answer = {"status": 400, "body": {"detail": "The request could not be carried out: %s" % e}}
    out.write(json.dumps(answer, separators=(",", ":")).encode() + b"\n")


TASKS = {"list": list_directory, "examine": examine, "read": read, "write": write, "mkdir": mkdir, "delete": delete,
         "move": move, "replace": replace, "grep": grep, "glob": glob, "search": search, "matches": matches,
         "compare": compare, "skills": skills, "read_skill": read_skill, "ports": ports}
main()
