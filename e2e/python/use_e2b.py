"""E2B's client for Python, with Berth in place of E2B."""

import io
import json
import os
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

os.environ.setdefault("E2B_API_KEY", "e2b_" + "0" * 40)

from e2b import FilesystemEventType, AsyncSandbox, CommandExitException, NotFoundException, Sandbox, SandboxQuery, Secret, SecretNotFoundException, Template, Volume, VolumeException, VolumePathNotFoundException  # noqa: E402

from berth import job, main  # noqa: E402


@job("a command in a sandbox")
def command():
    with Sandbox.create(envs={"COLOUR": "blue"}, timeout=60) as s:
        r = s.commands.run("echo $COLOUR; pwd; echo oops >&2")
        assert (r.exit_code, r.stdout, r.stderr) == (0, "blue\n/home/user\n", "oops\n"), r
        try:
            s.commands.run("exit 3")
            raise AssertionError("no error")
        except CommandExitException as e:
            assert e.exit_code == 3, e
    assert not s.is_running()


@job("input and a kill")
def background():
    with Sandbox.create() as s:
        h = s.commands.run("read line; echo got $line", background=True, stdin=True)
        assert h.pid in [c.pid for c in s.commands.list()]
        s.commands.send_stdin(h.pid, "it\n")
        assert h.wait().stdout == "got it\n"
        h = s.commands.run("sleep 1000", background=True)
        assert s.commands.kill(h.pid) and not s.commands.kill(h.pid)


@job("files")
def files():
    with Sandbox.create() as s:
        s.files.write("a.txt", "content")
        assert s.commands.run("cat a.txt").stdout == "content"
        assert s.files.read("/home/user/a.txt", format="bytes") == b"content"
        assert "a.txt" in [f.name for f in s.files.list(".")]
        assert s.files.make_dir("d") and not s.files.make_dir("d")
        s.files.rename("a.txt", "d/b.txt")
        assert s.files.exists("d/b.txt") and not s.files.exists("a.txt")
        s.files.remove("d")
        s.files.write("p1", "one,")
        s.files.write("p2", "two")
        request = urllib.request.Request(  # no method of this SDK sends it
            os.environ["E2B_SANDBOX_URL"] + "/files/compose",
            json.dumps({"source_paths": ["p1", "p2"], "destination": "whole/file"}).encode(),
            {"Content-Type": "application/json", "E2b-Sandbox-Id": s.sandbox_id, "X-Access-Token": s._envd_access_token},
        )
        assert json.load(urllib.request.urlopen(request)) == {"path": "/home/user/whole/file", "name": "file", "type": "file"}
        assert s.commands.run("cat whole/file; stat -c %U whole/file").stdout == "one,twouser\n"
        assert not s.files.exists("p1") and not s.files.exists("p2")
        s.files.write("packed.txt", "packed " * 1000, gzip=True, metadata={"Author": "Ada"})
        assert s.files.read("packed.txt") == "packed " * 1000
        assert s.files.get_info("packed.txt").metadata == {"author": "Ada"}
        assert "State" in s.files.read("/proc/self/status")
        watcher = s.files.watch_dir(".", include_entry=True, allow_network_mounts=True)
        s.files.write("w", "1")
        s.files.write("packed.txt", "replaced")
        seen, events = [], []
        while ("packed.txt", FilesystemEventType.WRITE) not in seen:
            events += watcher.get_new_events()
            seen = [(e.name, e.type) for e in events]
        assert ("w", FilesystemEventType.CREATE) in seen and ("w", FilesystemEventType.WRITE) in seen
        assert {name for name, _ in seen} == {"w", "packed.txt"}
        assert all(e.entry.path == "/home/user/" + e.name for e in events)


@job("a list by metadata")
def listing():
    user = f"eve & {uuid.uuid4()}"
    with Sandbox.create(metadata={"user": user}) as s:
        (found,) = Sandbox.list(query=SandboxQuery(metadata={"user": user})).next_items()
        assert (found.sandbox_id, found.metadata["user"]) == (s.sandbox_id, user)


@job("a deadline")
def deadline():
    s = Sandbox.create(timeout=60)
    s.set_timeout(120)
    left = s.get_info().end_at.timestamp() - time.time()
    assert 100 < left <= 121, left
    s.set_timeout(0)
    while s.is_running():
        pass
    try:
        s.get_info()
        raise AssertionError("no error")
    except NotFoundException:
        pass


@job("a pause with memory")
def pause():
    with Sandbox.create() as s:
        h = s.commands.run("sleep 1000", background=True)
        s.pause()  # ends the connection to the command
        assert not s.is_running()
        again = Sandbox.connect(s.sandbox_id)
        assert h.pid in [c.pid for c in again.commands.list()]
        again.commands.connect(h.pid).disconnect()


@job("the use of resources")
def metrics():
    with Sandbox.create() as s:
        s.commands.run("true")
        (m,) = s.get_metrics()
        assert 0 < m.mem_used < m.mem_total == 1 << 30, m


@job("a port by its host name")
def port():
    with Sandbox.create(timeout=120) as s:
        host = s.get_host(3000)
        assert host.startswith(f"3000-{s.sandbox_id}."), host
        s.files.write("index.html", "served")
        s.commands.run("python3 -m http.server 3000 --bind 127.0.0.1", background=True, timeout=0)
        request = urllib.request.Request(os.environ["E2B_API_URL"], headers={"Host": host})
        deadline = time.time() + 60
        while True:
            try:
                assert urllib.request.urlopen(request).read() == b"served"
                break
            except urllib.error.HTTPError as e:
                assert e.code == 502 and time.time() < deadline, e
                time.sleep(0.05)


@job("a snapshot")
def snapshot():
    with Sandbox.create(timeout=300) as s:
        s.files.write("a.txt", "kept")
        made = s.create_snapshot()
        s.files.write("a.txt", "changed")
        with Sandbox.create(made.snapshot_id, timeout=300) as again:
            assert again.files.read("a.txt") == "kept"
        assert Sandbox.delete_snapshot(made.snapshot_id)
        assert not Sandbox.delete_snapshot(made.snapshot_id)


@job("a volume in two sandboxes")
def volumes():
    made = Volume.create("py-" + uuid.uuid4().hex[:12])
    mounts = {"/home/user/notes": made}
    assert made.volume_id in [v.volume_id for v in Volume.list()]
    assert Volume.connect(made.volume_id).name == made.name
    with Sandbox.create(volume_mounts=mounts, timeout=300) as s:
        s.files.write("/home/user/notes/a.txt", "kept", user="root")
        assert made.read_file("a.txt") == "kept"
        assert made.write_file("from/outside.txt", "written", force=True).uid == 1000
        assert s.commands.run("cat /home/user/notes/from/outside.txt && echo more >> /home/user/notes/from/outside.txt").stdout == "written"
        s.commands.run("cd /home/user/notes && ln -s /etc/passwd leak && ln -s from/outside.txt link")
        assert made.read_file("link") == "writtenmore\n"
        for name in ("leak", "../../etc/passwd"):
            try:
                raise AssertionError(made.read_file(name))
            except VolumeException as e:
                assert "400" in str(e), e
        assert made.get_info("leak").target == "/etc/passwd"
    with Sandbox.create(volume_mounts=mounts, timeout=300) as s:
        assert s.files.read("/home/user/notes/a.txt") == "kept"
    deadline = time.time() + 60
    while True:  # until the sandboxes are gone
        try:
            assert Volume.destroy(made.volume_id)
            break
        except VolumeException as e:
            assert "in use" in str(e) and time.time() < deadline, e
            time.sleep(0.1)
    assert not Volume.destroy(made.volume_id)


@job("the files of a volume without a sandbox")
def volume_files():
    made = Volume.create("py-" + uuid.uuid4().hex[:12])
    v = Volume.connect(made.volume_id)
    entry = v.write_file("/a.txt", "héllo")
    assert (entry.name, entry.path, entry.size, entry.mode, entry.type.value) == ("a.txt", "/a.txt", 6, 0o644, "file"), entry
    assert v.read_file("a.txt") == "héllo"
    big = os.urandom(3 << 20)
    v.write_file("big", io.BytesIO(big), uid=0, gid=0, mode=0o600)
    assert v.read_file("big", format="bytes") == big
    assert b"".join(v.read_file("big", format="stream")) == big
    try:
        v.write_file("a.txt", "again")
        raise AssertionError("a file was replaced without force")
    except VolumeException as e:
        assert "exists already" in str(e), e
    assert v.write_file("a.txt", "", force=True).size == 0 and v.read_file("a.txt") == ""
    assert v.make_dir("d/e/f", force=True).type.value == "directory"
    assert [e.path for e in v.list("/")] == ["/a.txt", "/big", "/d"]
    assert [e.path for e in v.list("d", depth=2)] == ["/d/e", "/d/e/f"]
    changed = v.update_metadata("a.txt", uid=7, mode=0o640)
    assert (changed.uid, changed.gid, changed.mode) == (7, 1000, 0o640), changed
    assert v.exists("d") and not v.exists("none") and v.get_info("big").uid == 0
    v.remove("d")
    assert not v.exists("d/e")
    for call in (v.read_file, v.remove, v.list, v.get_info):
        try:
            call("none")
            raise AssertionError("no error")
        except VolumePathNotFoundException:
            pass
    assert Volume.destroy(made.volume_id)
    try:
        v.read_file("a.txt")
        raise AssertionError("a destroyed volume was read")
    except VolumePathNotFoundException:
        pass


@job("a template with a file")
def template():
    name = "py-" + uuid.uuid4().hex[:12]
    with tempfile.TemporaryDirectory() as context:
        with open(os.path.join(context, "a.txt"), "w") as f:
            f.write("copied")
        built = Template(file_context_path=context).from_base_image().copy("a.txt", "/srv/a.txt").set_envs({"A": "1"}).run_cmd("echo $A > b.txt; cat /srv/a.txt").set_workdir("/srv")
        lines = []
        Template.build(built, name, on_build_logs=lambda entry: lines.append(entry.message))
    assert any("copied" in line for line in lines), lines
    assert Template.exists(name)
    with Sandbox.create(name, timeout=300) as s:
        assert s.commands.run("pwd; cat a.txt ~/b.txt; echo $A").stdout == "/srv\ncopied1\n1\n"


@job("the asynchronous client")
async def asynchronous():
    s = await AsyncSandbox.create()
    assert (await s.commands.run("echo hi")).stdout == "hi\n"
    await s.kill()


@job("a secret and the rules that name it")
def secret():
    name = f"py-{uuid.uuid4().hex}"
    made = Secret.create(name, "the-value", metadata={"team": "a"})
    assert (made.name, made.version, made.metadata) == (name, 1, {"team": "a"}), made
    rules = {"*.example.com": [{"transform": {"headers": {"X-Key": Secret.fill(name)}}}]}
    with Sandbox.create(timeout=60, network={"rules": rules, "deny_out": ["0.0.0.0/0"], "allow_out": ["api.example.com"]}) as s:
        assert s.get_info().network["rules"] == rules, s.get_info().network
        s.update_network({"deny_out": ["0.0.0.0/0"]})
    assert Secret.update(name, "the-next-value").version == 2
    assert Secret.get_info(made.secret_id).version == 2
    names, pages = [], Secret.list(limit=1)
    while pages.has_next:
        names += [s.name for s in pages.next_items()]
    assert name in names, names
    assert (Secret.exists(name), Secret.destroy(name), Secret.destroy(name)) == (True, True, False)
    try:
        Secret.get_info(name)
        raise AssertionError("no error")
    except SecretNotFoundException:
        pass


if __name__ == "__main__":
    main()
