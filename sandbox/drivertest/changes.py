# Changes files below directories at random ("change SEED COUNT DIR..."), or prints what
# they are ("look DIR...").
import hashlib, os, random, stat, subprocess, sys

SKIPPED = {"/etc/resolv.conf", "/etc/hosts", "/etc/hostname", "/etc/mtab", "/etc/ssl/certs"}
OLD = 981173106.5


def walk(top):
    yield top
    for name in sorted(os.listdir(top)):
        path = os.path.join(top, name)
        if path in SKIPPED:
            continue
        if stat.S_ISDIR(os.lstat(path).st_mode):
            yield from walk(path)
        else:
            yield path


def run(*args):
    subprocess.run(args, check=False, stderr=subprocess.DEVNULL)


class Changer:
    def __init__(self, seed, tops):
        self.random, self.tops, self.made = random.Random(seed), tops, 0

    def some(self, kind):
        top = self.random.choice(self.tops)
        found = [p for p in walk(top) if kind(os.lstat(p).st_mode) and p not in self.tops]
        return self.random.choice(found) if found else None

    def new(self):
        self.made += 1
        dirs = [p for p in walk(self.random.choice(self.tops)) if stat.S_ISDIR(os.lstat(p).st_mode)]
        name = self.random.choice(["new", ".hidden", "with\nline", b"caf\xe9".decode("utf-8", "surrogateescape"), "x" * 200])
        return os.path.join(self.random.choice(dirs), f"{name}{self.made}")

    def write(self, path):
        with open(path, "wb") as f:
            f.write(self.random.randbytes(self.random.choice([0, 1, 5000])))

    def again(self, path, change):
        """A change that the file's own times do not show."""
        st = os.lstat(path)
        change(path)
        os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))

    def one(self):
        file, folder, new = self.some(stat.S_ISREG), self.some(stat.S_ISDIR), self.new()
        ways = [
            lambda: self.write(new),
            lambda: os.mkdir(new),
            lambda: os.mkfifo(new),
            lambda: os.symlink("/nowhere", new),
            lambda: (open(new, "wb").close(), os.truncate(new, 300_000)),
        ]
        if file:
            ways += [
                lambda: self.again(file, self.flip),
                lambda: self.again(file, self.mapped),
                lambda: os.chmod(file, 0o4711),
                lambda: os.chown(file, 1234, 4321),
                lambda: os.utime(file, (OLD, OLD)),
                lambda: os.unlink(file),
                lambda: os.link(file, new),
                lambda: os.rename(file, new),
                lambda: (os.unlink(file), os.mkdir(file)),
                lambda: (os.unlink(file), os.symlink("../x", file)),
                lambda: (run("cp", "-p", file, file + "~"), os.rename(file + "~", file)),
                lambda: os.setxattr(file, "user.colour", b"blue"),
            ]
        if folder:
            ways += [
                lambda: run("mv", folder, new),
                lambda: (run("mv", folder, new), run("mv", new, folder)),
                lambda: run("rm", "-r", folder),
                lambda: (run("rm", "-r", folder), os.mkdir(folder), self.write(folder + "/instead")),
                lambda: (run("rm", "-r", folder), self.write(folder)),
                lambda: os.chmod(folder, 0o1777),
                lambda: os.utime(folder, (OLD, OLD)),
            ]
        try:
            self.random.choice(ways)()
        except OSError:
            pass  # not under every kernel, nor with everything

    def flip(self, path):
        with open(path, "r+b") as f:
            first = f.read(1)
            f.seek(0)
            f.write(bytes([first[0] ^ 1]) if first else b"x")

    def mapped(self, path):
        try:
            import mmap
        except ImportError:
            return self.flip(path)
        with open(path, "r+b") as f:
            if os.fstat(f.fileno()).st_size:
                with mmap.mmap(f.fileno(), 0) as m:
                    m[0] ^= 1
                    m.flush()


def look(tops):
    links, lines = {}, []
    for top in tops:
        for path in walk(top):
            st = os.lstat(path)
            line = [path, oct(st.st_mode), st.st_uid, st.st_gid]
            if path not in tops:
                line.append(st.st_mtime_ns)
            if stat.S_ISREG(st.st_mode):
                with open(path, "rb") as f:
                    line += [st.st_size, hashlib.md5(f.read()).hexdigest()]
                try:
                    line.append(os.getxattr(path, "user.colour"))
                except OSError:
                    pass
                line.append(links.setdefault((st.st_dev, st.st_ino), path))
            elif stat.S_ISLNK(st.st_mode):
                line.append(os.readlink(path))
            elif stat.S_ISCHR(st.st_mode):
                line.append(st.st_rdev)
            lines.append(repr(line))
    print("\n".join(lines))


command, args = sys.argv[1], sys.argv[2:]
if command == "change":
    changer = Changer(int(args[0]), args[2:])
    for _ in range(int(args[1])):
        changer.one()
elif command == "look":
    look(args)
