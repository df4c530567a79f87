package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/longtest"
)

// A published release is served as a code forge does, with its repositories of packages beside it.
type published struct {
	t    *testing.T
	dist string // what make release has built
	url  string // of all releases
	host string
	key  string // directory of GnuPG
}

// publishRelease builds and signs a release of the current commit, or takes that of BERTH_TEST_RELEASE, which must be
// signed.
func publishRelease(t *testing.T) *published {
	t.Helper()
	for _, program := range []string{"apt-ftparchive", "createrepo_c", "rpm", "rpmbuild", "dnf", "gpg", "ssh-keygen",
		"openssl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skipped: %s is not installed", program)
		}
	}
	p := &published{t: t, dist: os.Getenv("BERTH_TEST_RELEASE"), key: t.TempDir()}
	p.run("gpg", "--batch", "--pinentry-mode=loopback", "--passphrase=", "--quick-gen-key", "berth@berth.run", "ed25519",
		"sign")
	t.Cleanup(func() { _ = exec.Command("gpgconf", "--homedir", p.key, "--kill", "gpg-agent").Run() })
	if p.dist == "" {
		// In a clone, because dist/ of the working tree may have another release.
		clone := filepath.Join(t.TempDir(), "berth")
		p.run("git", "clone", "-q", "..", clone)
		secret := filepath.Join(t.TempDir(), "key")
		p.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", secret)
		cosign := filepath.Join(t.TempDir(), "cosign.pem")
		p.run("openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", cosign)
		p.run("sh", "-c", `cd "$0" && RELEASE_GPG=berth@berth.run RELEASE_KEY="$1" RELEASE_ARCHS="$2" RELEASE_COSIGN="$3" scripts/release`,
			clone, secret, runtime.GOARCH, cosign)
		p.dist = filepath.Join(clone, "dist")
		// As cosign verify-blob does without a transparency log.
		p.run("sh", "-c", `cd "$0" && base64 -d SHA256SUMS.cosign >"$1" &&
			openssl dgst -sha256 -verify cosign.pub -signature "$1" SHA256SUMS`, p.dist, filepath.Join(t.TempDir(), "signature"))
	} else {
		copied := t.TempDir()
		p.run("cp", "-r", p.dist+"/.", copied)
		p.dist = copied
		p.run("sh", "-c", `RELEASE_GPG=berth@berth.run ../scripts/repositories "$0"`, p.dist)
	}
	if unlisted := p.run("sh", "-c", `cd "$0" && for f in *; do
		case "$f" in SHA256SUMS* | cosign.pub) continue ;; esac
		[ ! -f "$f" ] || grep -qF "  $f" SHA256SUMS || echo "$f"; done`, p.dist); unlisted != "" {
		t.Errorf("the signed checksums do not have %s", unlisted)
	}
	if closed := p.run("find", p.dist, "-type", "f", "!", "-perm", "-444"); closed != "" {
		t.Errorf("a web server of another user cannot read %s", closed)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := regexp.MustCompile(`^/releases/(latest/download|download/v[^/]+)/`).ReplaceAllString(r.URL.Path, "/")
		http.ServeFile(w, r, filepath.Join(p.dist, filepath.Clean("/"+path)))
	}))
	t.Cleanup(server.Close)
	p.host, p.url = server.URL, server.URL+"/releases"
	return p
}

// run runs a program that must succeed, and returns its output.
func (p *published) run(args ...string) string {
	p.t.Helper()
	out, err := p.try(nil, args...)
	if err != nil {
		p.t.Fatalf("%q: %v: %s", args, err, out)
	}
	return out
}

func (p *published) try(env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(p.t.Context(), args[0], args[1:]...)
	cmd.Env = append(append(os.Environ(), "GNUPGHOME="+p.key, "BERTH_RELEASES="+p.url), env...)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// A stranger installs a release by its script, fetches the template, gets a response with a container, installs over
// the server that runs, and removes all of it. What is not signed is not installed.
func TestReleaseInstall(t *testing.T) {
	longtest.Skip(t)
	if os.Getuid() != 0 {
		t.Skip("gVisor sandboxes need root")
	}
	p := publishRelease(t)
	prefix, script := filepath.Join(t.TempDir(), "usr"), filepath.Join(p.dist, "install.sh")
	install := func(env []string, args ...string) (string, error) {
		return p.try(env, append([]string{"sh", script, "--prefix", prefix, "--no-service"}, args...)...)
	}

	strangers := filepath.Join(t.TempDir(), "signers")
	secret := filepath.Join(t.TempDir(), "key")
	p.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", secret)
	p.run("sh", "-c", `echo "other@example.com $(cat "$0.pub")" >"$1"`, secret, strangers)
	program := "berth_*_linux_" + runtime.GOARCH + ".tar.gz"
	tarballs, err := filepath.Glob(filepath.Join(p.dist, program))
	if err != nil || len(tarballs) != 1 {
		t.Fatalf("%s: %q, %v", program, tarballs, err)
	}
	for what, c := range map[string]struct {
		env  []string
		args []string
		want string
	}{
		"another signer":   {env: []string{"BERTH_SIGNERS=" + strangers}, want: "has no signature of a known signer"},
		"another version":  {args: []string{"--version", "99.9.9"}, want: "in place of 99.9.9"},
		"a wrong version":  {args: []string{"--version", "1/../.."}, want: "is not a version"},
		"a wrong argument": {args: []string{"--force"}, want: "unknown argument --force"},
		"a wrong prefix":   {args: []string{"--prefix", "usr"}, want: "is not an absolute path"},
	} {
		if out, err := install(c.env, c.args...); err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: got %s, %v; want %q", what, out, err, c.want)
		}
	}
	whole, err := os.ReadFile(tarballs[0])
	if err != nil {
		t.Fatal(err)
	}
	write := func(content []byte) {
		if err := os.WriteFile(tarballs[0], content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(append([]byte{0}, whole[1:]...))
	if out, err := install(nil); err == nil || !strings.Contains(out, "does not have the checksum of the release") {
		t.Errorf("a changed program: got %s, %v", out, err)
	}
	write(whole)
	if exists(prefix) {
		t.Errorf("what was refused has left %s", prefix)
	}

	if out, err := install(nil); err != nil || !strings.Contains(out, "signed by berth@berth.run") {
		t.Fatalf("install.sh: got %s, %v", out, err)
	}
	installed := filepath.Join(prefix, "bin", "berth")
	later := filepath.Join(t.TempDir(), "later")
	p.run("sh", "-c", `install -D -m 755 /dev/stdin "$0/bin/berth" <<'end'
#!/bin/sh
echo "berth    99.10.0"
end`, later)
	if out, err := install(nil, "--prefix", later); err == nil || !strings.Contains(out, "and 99.10.0 is installed here") {
		t.Errorf("an older release as the latest one: got %s, %v", out, err)
	}
	t.Setenv("BERTH_BIN", installed)
	s := &server{t: t, state: t.TempDir(), log: &logBuffer{}}
	out, err := s.command("image", "fetch", "--from", p.url, "--signers", filepath.Join(p.dist,
		"allowed_signers")).CombinedOutput()
	if err != nil {
		t.Fatalf("image fetch: %v: %s", err, out)
	}
	s.start()
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			s.close()
		}
	})
	answers := func(when string) {
		t.Helper()
		if out, errs, err := s.berth("run", "--model", "scripted",
			fence("python3 -c 'import pandas; print(6*7)'")); err != nil || !strings.Contains(out+errs, "42") {
			t.Errorf("a response %s: got %v: %s%s", when, err, out, errs)
		}
	}
	answers("at first")
	if out, err := install(nil); err != nil {
		t.Errorf("install over a server that runs: got %s, %v", out, err)
	}
	answers("of the server that runs, after an installation")
	s.close()
	if out, err := p.try([]string{"BERTH_STATE=" + s.state}, "sh", script, "--prefix", prefix, "--uninstall"); err != nil {
		t.Errorf("uninstall: got %s, %v", out, err)
	}
	if left := p.run("find", prefix, "-type", "f"); left != "" {
		t.Errorf("the removal leaves %s", left)
	}
	if !exists(s.state, "berth.db") {
		t.Error("the removal has taken the state")
	}
}

// The repositories are such as apt and rpm read, and the signature of their lists holds.
func TestReleaseRepositories(t *testing.T) {
	longtest.Skip(t)
	p := publishRelease(t)
	dir := t.TempDir()
	for _, sub := range []string{"etc/apt/apt.conf.d", "etc/apt/preferences.d", "etc/apt/trusted.gpg.d", "state/lists/partial",
		"cache/archives/partial", "dpkg", "down"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	list := fmt.Sprintf("deb [signed-by=%s] %s/apt stable main\n", filepath.Join(p.dist, "apt", "berth.gpg"), p.host)
	for name, text := range map[string]string{"etc/apt/sources.list": list, "dpkg/status": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	apt := func(args ...string) (string, error) {
		return p.try(nil, append([]string{"sh", "-c", `cd "$0/down" && exec "$@"`, dir, "apt-get", "-q",
			"-o", "Dir::Etc=" + dir + "/etc/apt", "-o", "Dir::State=" + dir + "/state", "-o", "Dir::Cache=" + dir + "/cache",
			"-o", "Dir::State::status=" + dir + "/dpkg/status", "-o", "APT::Sandbox::User=root",
			"-o", "Acquire::http::Proxy=DIRECT"}, args...)...)
	}
	if out, err := apt("update"); err != nil || strings.Contains(out, "W:") || strings.Contains(out, "E:") {
		t.Fatalf("apt-get update: %v: %s", err, out)
	}
	if out, err := apt("download", "berth"); err != nil {
		t.Fatalf("apt-get download: %v: %s", err, out)
	}
	packages, err := filepath.Glob(filepath.Join(dir, "down", "berth_*.deb"))
	if err != nil || len(packages) != 1 {
		t.Fatalf("downloaded: %q, %v", packages, err)
	}
	unpacked := filepath.Join(dir, "deb")
	p.run("dpkg-deb", "-x", packages[0], unpacked)
	p.run(filepath.Join(unpacked, "usr/bin/berth"), "version")
	if text := p.run("zcat", filepath.Join(unpacked, "usr/share/doc/berth/NOTICES.gz")); !strings.Contains(text,
		"==== gvisor.dev/gvisor ") {
		t.Errorf("the notices of the package do not have gVisor's licence: %.200s", text)
	}
	if got, want := p.run("cat", filepath.Join(unpacked, "usr/share/berth/release-signers")),
		p.run("cat", filepath.Join(p.dist, "allowed_signers")); got != want {
		t.Errorf("the signers in the package: got %s, want %s", got, want)
	}

	inRelease := filepath.Join(p.dist, "apt/dists/stable/InRelease")
	text, err := os.ReadFile(inRelease)
	if err != nil {
		t.Fatal(err)
	}
	forged := strings.Replace(string(text), "Origin: Berth", "Origin: Other", 1)
	if err := os.WriteFile(inRelease, []byte(forged), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := apt("update", "--error-on=any"); err == nil {
		t.Errorf("apt-get update with a forged list: %s", out)
	}

	rpms, err := filepath.Glob(filepath.Join(p.dist, "yum", "berth-*.rpm"))
	if err != nil || len(rpms) != 1 {
		t.Fatalf("yum: %q, %v", rpms, err)
	}
	root := filepath.Join(dir, "rpm")
	p.run("rpm", "--root", root, "--initdb")
	p.run("rpm", "--root", root, "--install", "--nodeps", "--noscripts", rpms[0])
	p.run(filepath.Join(root, "usr/bin/berth"), "version")
	for _, name := range []string{"usr/lib/systemd/system/berth.service", "etc/berth/berth.yaml"} {
		if !exists(root, name) {
			t.Errorf("the RPM package has no %s", name)
		}
	}
	p.run("rpm", "--root", root, "--erase", "--noscripts", "berth")
	p.run("gpg", "--verify", filepath.Join(p.dist, "yum/repodata/repomd.xml.asc"))
	checksum, _, _ := strings.Cut(p.run("sha256sum", rpms[0]), " ")
	if list := p.run("sh", "-c", `zcat "$0"/repodata/*primary.xml.gz`, filepath.Join(p.dist, "yum")); !strings.Contains(list,
		checksum) {
		t.Error("the list of the yum repository does not have the package")
	}
	p.dnf(filepath.Join(dir, "dnf"))
}

// dnf installs the package from the repository as docs/install.md says, and refuses a list that was changed. What the
// package needs of a distribution is a package without files.
func (p *published) dnf(dir string) {
	p.t.Helper()
	install := func() (string, error) {
		return p.try(nil, "dnf", "-y", "--installroot="+filepath.Join(dir, "root"), "--releasever=9",
			"--setopt=reposdir="+filepath.Join(dir, "repos"), "--setopt=cachedir="+filepath.Join(dir, "cache"),
			"--setopt=logdir="+filepath.Join(dir, "log"), "--setopt=persistdir="+filepath.Join(dir, "persist"),
			"--setopt=tsflags=noscripts", "install", "berth")
	}
	for name, text := range map[string]string{
		"distribution.spec": "Name: distribution\nVersion: 1\nRelease: 1\nSummary: Stands in for a distribution\n" +
			"License: none\nBuildArch: noarch\nProvides: ca-certificates shadow-utils\n%description\n%files\n",
		"repos/distribution.repo": "[distribution]\nname=Distribution\nbaseurl=file://" + dir + "/distribution\ngpgcheck=0\n",
		"repos/berth.repo": fmt.Sprintf("[berth]\nname=Berth\nbaseurl=%[1]s/yum\nrepo_gpgcheck=1\ngpgcheck=0\n"+
			"gpgkey=%[1]s/yum/berth.asc\nproxy=_none_\n", p.host),
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			p.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
	p.run("mkdir", filepath.Join(dir, "log"))
	p.run("rpmbuild", "-bb", "--define", "_topdir "+filepath.Join(dir, "build"), "--define",
		"_rpmdir "+filepath.Join(dir, "distribution"), filepath.Join(dir, "distribution.spec"))
	p.run("createrepo_c", "-q", filepath.Join(dir, "distribution"))
	if out, err := install(); err != nil {
		p.t.Fatalf("dnf install berth: %v: %s", err, out)
	}
	p.run(filepath.Join(dir, "root/usr/bin/berth"), "version")

	p.run("sed", "-i", "s/<revision>/&9/", filepath.Join(p.dist, "yum/repodata/repomd.xml"))
	p.run("rm", "-rf", filepath.Join(dir, "root"), filepath.Join(dir, "cache"))
	if out, err := install(); err == nil || !strings.Contains(out, "signature") {
		p.t.Errorf("dnf install berth from a list that was changed: %v: %s", err, out)
	}
}
