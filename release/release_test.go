package release_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"

	"github.com/berth-run/berth/release"
)

// signer returns a key for signatures, and its line of an allowed_signers file.
func signer(t *testing.T) (ssh.Signer, string) {
	t.Helper()
	_, secret, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewSignerFromKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	return key, "berth@berth.run " + string(ssh.MarshalAuthorizedKey(key.PublicKey()))
}

func parse(t *testing.T, lines string) []ssh.PublicKey {
	t.Helper()
	keys, err := release.ParseSigners([]byte(lines))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// publish returns the files of a release with checksums and their signature.
func publish(t *testing.T, key ssh.Signer, namespace string, files map[string]string) map[string]string {
	t.Helper()
	sums := ""
	all := map[string]string{}
	for name, text := range files {
		sums += fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(text)), name)
		all[name] = text
	}
	signature, err := sshsig.Sign(strings.NewReader(sums), key, sshsig.HashSHA512, namespace)
	if err != nil {
		t.Fatal(err)
	}
	all["SHA256SUMS"], all["SHA256SUMS.sig"] = sums, string(sshsig.Armor(signature))
	return all
}

// serve serves directories of files by their path and returns the URL.
func serve(t *testing.T, dirs map[string]map[string]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		dir, name := filepath.Split(r.URL.Path)
		text, ok := dirs[dir][name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(server.Close)
	return server.URL + "/releases"
}

var files = map[string]string{"berth_1.2.3_linux_amd64.tar.gz": "program", "berth-base_1.2.3_linux_amd64.tar": "template"}

func TestFetch(t *testing.T) {
	key, line := signer(t)
	_, other := signer(t)
	made := publish(t, key, release.Namespace, files)
	s := &release.Source{URL: serve(t, map[string]map[string]string{"/releases/download/v1.2.3/": made,
		"/releases/latest/download/": made}), Signers: parse(t, "# ours\n\n"+other+line)}
	for _, version := range []string{"1.2.3", release.Latest} {
		r, err := s.Open(t.Context(), version)
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"berth-base_1.2.3_linux_amd64.tar", "berth_1.2.3_linux_amd64.tar.gz"}; r.Version != "1.2.3" ||
			!slices.Equal(r.Files(), want) {
			t.Errorf("got version %s with %q, want 1.2.3 with %q", r.Version, r.Files(), want)
		}
		to := filepath.Join(t.TempDir(), "base.tar")
		var last, length int64
		err = r.Fetch(t.Context(), "berth-base_1.2.3_linux_amd64.tar", to, func(done, total int64) {
			last, length = done, total
		})
		if err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(to); err != nil || string(text) != "template" || last != 8 || length != 8 {
			t.Errorf("got %q, %v, %d of %d bytes", text, err, last, length)
		}
		if err := r.Fetch(t.Context(), "berth-full_1.2.3_linux_amd64.tar", to, nil); err == nil ||
			!strings.Contains(err.Error(), "has no file") {
			t.Errorf("a file that the release lacks: got %v", err)
		}
	}
}

// A signature by ssh-keygen is accepted.
func TestSignedBySSHKeygen(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("ssh-keygen is not installed")
	}
	dir := t.TempDir()
	key, _ := signer(t)
	made := publish(t, key, release.Namespace, files)
	sums := filepath.Join(dir, "SHA256SUMS")
	if err := os.WriteFile(sums, []byte(made["SHA256SUMS"]), 0o600); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(dir, "key")
	for _, args := range [][]string{{"-q", "-t", "ed25519", "-N", "", "-f", secret},
		{"-q", "-Y", "sign", "-n", release.Namespace, "-f", secret, sums}} {
		if out, err := exec.CommandContext(t.Context(), "ssh-keygen", args...).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen %q: %v: %s", args, err, out)
		}
	}
	signature, err := os.ReadFile(sums + ".sig")
	if err != nil {
		t.Fatal(err)
	}
	public, err := os.ReadFile(secret + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	made["SHA256SUMS.sig"] = string(signature)
	s := &release.Source{URL: serve(t, map[string]map[string]string{"/releases/download/v1.2.3/": made}),
		Signers: parse(t, `berth@berth.run namespaces="file,berth-release" `+string(public))}
	if _, err := s.Open(t.Context(), "1.2.3"); err != nil {
		t.Error(err)
	}
}

// What a server that lies may serve is refused, and leaves no file.
func TestHostileServer(t *testing.T) {
	key, line := signer(t)
	stranger, _ := signer(t)
	with := func(change func(all map[string]string)) map[string]string {
		all := publish(t, key, release.Namespace, files)
		change(all)
		return all
	}
	signed := func(sums string) map[string]string {
		all := publish(t, key, release.Namespace, nil)
		signature, err := sshsig.Sign(strings.NewReader(sums), key, sshsig.HashSHA512, release.Namespace)
		if err != nil {
			t.Fatal(err)
		}
		all["SHA256SUMS"], all["SHA256SUMS.sig"] = sums, string(sshsig.Armor(signature))
		return all
	}
	zero := strings.Repeat("0", 64)
	for name, c := range map[string]struct {
		files map[string]string
		want  string
		is    error
	}{
		"no signature":      {with(func(all map[string]string) { delete(all, "SHA256SUMS.sig") }), "answered 404", release.ErrUnsigned},
		"garbage":           {with(func(all map[string]string) { all["SHA256SUMS.sig"] = "x" }), "decode", release.ErrUnsigned},
		"another signer":    {publish(t, stranger, release.Namespace, files), "", release.ErrUnsigned},
		"another namespace": {publish(t, key, "file", files), "", release.ErrUnsigned},
		"changed checksums": {with(func(all map[string]string) { all["SHA256SUMS"] += zero + "  more\n" }), "", release.ErrUnsigned},
		"endless checksums": {with(func(all map[string]string) { all["SHA256SUMS"] = strings.Repeat("x", 2<<20) }), "more than", nil},
		"an older version":  {publish(t, key, release.Namespace, map[string]string{"berth_1.2.2_linux_amd64.tar.gz": ""}), "of version 1.2.2", nil},
		"no program":        {publish(t, key, release.Namespace, map[string]string{"other": ""}), "lists no program", nil},
		"a path":            {signed(zero + "  ../x\n"), "malformed", nil},
		"a directory":       {signed(zero + "  ..\n"), "malformed", nil},
		"a short sum":       {signed("00  x\n"), "malformed", nil},
		"one file twice":    {signed(zero + "  x\n" + zero + "  x\n"), "twice", nil},
		"no checksums":      {map[string]string{}, "answered 404", nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := &release.Source{URL: serve(t, map[string]map[string]string{"/releases/download/v1.2.3/": c.files}),
				Signers: parse(t, line)}
			_, err := s.Open(t.Context(), "1.2.3")
			if err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("got %v, want %q, %v", err, c.want, c.is)
			}
		})
	}
	t.Run("another file", func(t *testing.T) {
		s := &release.Source{URL: serve(t, map[string]map[string]string{"/releases/download/v1.2.3/": with(
			func(all map[string]string) { all["berth_1.2.3_linux_amd64.tar.gz"] = "trojan" })}), Signers: parse(t, line)}
		r, err := s.Open(t.Context(), "1.2.3")
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		err = r.Fetch(t.Context(), "berth_1.2.3_linux_amd64.tar.gz", filepath.Join(dir, "berth.tar.gz"), nil)
		if !errors.Is(err, release.ErrChecksum) {
			t.Errorf("got %v, want %v", err, release.ErrChecksum)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left %v, %v", left, err)
		}
	})
}

func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct{ url, version string }{
		{"ftp://example.com", "1.2.3"}, {"example.com", "1.2.3"}, {"https://example.com", "1.2.3/../.."},
		{"https://example.com", "newest"}, {"https://example.com", ""},
	} {
		s := &release.Source{URL: c.url}
		if _, err := s.Open(t.Context(), c.version); err == nil || !strings.Contains(err.Error(), "is not a") {
			t.Errorf("Open(%q) at %q: got %v", c.version, c.url, err)
		}
	}
}

func TestParseSigners(t *testing.T) {
	_, line := signer(t)
	for name, text := range map[string]string{
		"nothing": "", "a comment": "# x\n", "no key": "berth@berth.run\n", "not a key": "berth@berth.run ssh-ed25519 x\n",
		"another purpose": strings.Replace(line, " ", ` namespaces="git" `, 1),
		"a key that ends": strings.Replace(line, " ", ` valid-before="20200101" `, 1),
	} {
		if keys, err := release.ParseSigners([]byte(text)); err == nil {
			t.Errorf("%s: got %d keys", name, len(keys))
		}
	}
}

func FuzzParseSigners(f *testing.F) {
	f.Add([]byte("a ssh-ed25519 AAAA\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := release.ParseSigners(text)
		if err == nil && (len(keys) == 0 || slices.Contains(keys, nil)) {
			t.Errorf("got %v without an error", keys)
		}
	})
}
