// Package release reads releases of Berth from the server that publishes them, and verifies what it reads.
//
// A release is files of one version beside SHA256SUMS, which has their checksums, and SHA256SUMS.sig, its signature by
// an SSH key (ssh-keygen -Y sign -n berth-release). A server has the files of version 1.2.3 in download/v1.2.3/ and
// the files of the newest version in latest/download/, as code forges do.
package release

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// Namespace is the namespace of signatures.
const Namespace = "berth-release"

// Latest is the name of the newest version.
const Latest = "latest"

const (
	sumsFile      = "SHA256SUMS"
	signatureFile = sumsFile + ".sig"
	maxSums       = 1 << 20 // bytes of SHA256SUMS
	maxSignature  = 64 << 10
	maxFile       = 16 << 30
)

// ErrUnsigned means that the checksums of a release have no signature by a signer that the caller trusts.
var ErrUnsigned = errors.New("no trusted signer has signed the release")

// ErrChecksum means that a file is not the one that its release lists.
var ErrChecksum = errors.New("the file does not have the checksum of the release")

// A Source is a server that publishes releases. It is safe for concurrent use.
type Source struct {
	URL    string       // of all releases: https://example.com/berth/releases
	Client *http.Client // default: http.DefaultClient

	// Signers are the keys that may sign, as ParseSigners returns them. Without any, no signature is asked for: then
	// checksums find damage, not fraud.
	Signers []ssh.PublicKey
}

// A Release is the files of one version.
type Release struct {
	Version string // such as 1.2.3
	source  *Source
	dir     string // URL
	sums    map[string][sha256.Size]byte
}

// ParseSigners parses an allowed_signers file of ssh-keygen: each line has names, options and a key.
func ParseSigners(text []byte) ([]ssh.PublicKey, error) {
	var keys []ssh.PublicKey
	for i, line := range bytes.Split(text, []byte("\n")) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		_, rest, ok := bytes.Cut(line, []byte(" "))
		if !ok {
			return nil, fmt.Errorf("line %d: want a name and a key", i+1)
		}
		key, _, options, _, err := ssh.ParseAuthorizedKey(bytes.TrimSpace(rest))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		if !mayRelease(options) {
			continue
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("no key may sign releases")
	}
	return keys, nil
}

// mayRelease reports whether the options of a signer allow it to sign releases. An option that it does not know, such
// as the end of a key's life, excludes the signer.
func mayRelease(options []string) bool {
	for _, o := range options {
		spaces, ok := strings.CutPrefix(o, `namespaces="`)
		if !ok || !slices.Contains(strings.Split(strings.TrimSuffix(spaces, `"`), ","), Namespace) {
			return false
		}
	}
	return true
}

var (
	versionPattern = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$`)
	programPattern = regexp.MustCompile(`^berth_(.+)_linux_(amd64|arm64)\.tar\.gz$`)
)

// Open reads the list of files of a version, or of Latest, and verifies its signature.
func (s *Source) Open(ctx context.Context, version string) (*Release, error) {
	dir, err := s.dir(version)
	if err != nil {
		return nil, err
	}
	r := &Release{source: s, dir: dir}
	sums, err := r.read(ctx, sumsFile, maxSums)
	if err != nil {
		return nil, fmt.Errorf("read release %s: %w", version, err)
	}
	if len(s.Signers) > 0 {
		signature, err := r.read(ctx, signatureFile, maxSignature)
		if err != nil {
			return nil, fmt.Errorf("read signature of release %s: %w", version, errors.Join(ErrUnsigned, err))
		}
		if err := verify(sums, signature, s.Signers); err != nil {
			return nil, fmt.Errorf("release %s: %w", version, err)
		}
	}
	if r.sums, err = parseSums(sums); err != nil {
		return nil, fmt.Errorf("release %s: %w", version, err)
	}
	for name := range r.sums {
		if m := programPattern.FindStringSubmatch(name); m != nil {
			r.Version = m[1]
		}
	}
	switch {
	case !versionPattern.MatchString(r.Version):
		return nil, fmt.Errorf("release %s: %s lists no program", version, sumsFile)
	case version != Latest && r.Version != version:
		return nil, fmt.Errorf("release %s: its files are of version %s", version, r.Version)
	}
	return r, nil
}

// dir returns the URL of the files of a version.
func (s *Source) dir(version string) (string, error) {
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return "", fmt.Errorf("%q is not a URL of releases", s.URL)
	}
	switch {
	case version == Latest:
		return u.JoinPath("latest", "download").String(), nil
	case versionPattern.MatchString(version):
		return u.JoinPath("download", "v"+version).String(), nil
	}
	return "", fmt.Errorf("%q is not a version such as 1.2.3", version)
}

// verify checks that one of the signers has signed text.
func verify(text, armored []byte, signers []ssh.PublicKey) error {
	signature, err := sshsig.Unarmor(armored)
	if err != nil {
		return fmt.Errorf("%w: decode %s: %w", ErrUnsigned, signatureFile, err)
	}
	for _, key := range signers {
		if err = sshsig.Verify(bytes.NewReader(text), signature, key, signature.HashAlgorithm, Namespace); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: %w", ErrUnsigned, err)
}

// parseSums parses the output of sha256sum.
func parseSums(text []byte) (map[string][sha256.Size]byte, error) {
	sums := map[string][sha256.Size]byte{}
	for line := range strings.Lines(string(text)) {
		hexSum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		sum, err := hex.DecodeString(hexSum)
		if !ok || err != nil || len(sum) != sha256.Size || name != path.Base(name) || name == "." || name == ".." {
			return nil, fmt.Errorf("%s has a malformed line: %.100q", sumsFile, line)
		}
		if _, twice := sums[name]; twice {
			return nil, fmt.Errorf("%s lists %s twice", sumsFile, name)
		}
		sums[name] = [sha256.Size]byte(sum)
	}
	return sums, nil
}

// Files returns the names of the files, sorted.
func (r *Release) Files() []string { return slices.Sorted(maps.Keys(r.sums)) }

// Fetch writes a file of the release to a path, which has the file only when it is whole and verified. It reports the
// bytes so far and the length, or 0 for one that the server does not tell, if report is not nil.
func (r *Release) Fetch(ctx context.Context, name, to string, report func(done, total int64)) error {
	sum, ok := r.sums[name]
	if !ok {
		return fmt.Errorf("release %s has no file %s, only %s", r.Version, name, strings.Join(r.Files(), ", "))
	}
	f, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+"-*")
	if err != nil {
		return fmt.Errorf("fetch %s: %w", name, err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	body, total, err := r.get(ctx, name)
	if err != nil {
		return fmt.Errorf("fetch %s: %w", name, err)
	}
	defer body.Close()
	out := &digested{f: f, hash: sha256.New(), total: total, report: report}
	if n, err := io.Copy(out, io.LimitReader(body, maxFile+1)); err != nil {
		return fmt.Errorf("fetch %s: %w", name, err)
	} else if n > maxFile {
		return fmt.Errorf("fetch %s: the file has more than %d bytes", name, int64(maxFile))
	}
	if !bytes.Equal(out.hash.Sum(nil), sum[:]) {
		return fmt.Errorf("fetch %s: %w", name, ErrChecksum)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("fetch %s: %w", name, err)
	}
	if err := os.Rename(f.Name(), to); err != nil {
		return fmt.Errorf("fetch %s: %w", name, err)
	}
	return nil
}

// digested writes to a file and to a hash.
type digested struct {
	f           *os.File
	hash        hash.Hash
	done, total int64
	report      func(done, total int64)
}

func (d *digested) Write(p []byte) (int, error) {
	n, err := d.f.Write(p)
	d.hash.Write(p[:n])
	d.done += int64(n)
	if d.report != nil {
		d.report(d.done, max(d.total, 0))
	}
	return n, err
}

// read reads a small file.
func (r *Release) read(ctx context.Context, name string, most int64) ([]byte, error) {
	body, _, err := r.get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, most+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return text, nil
}

// get opens a file of the release. size is negative if the server does not tell it.
func (r *Release) get(ctx context.Context, name string) (body io.ReadCloser, size int64, err error) {
	address := r.dir + "/" + url.PathEscape(name)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, 0, err
	}
	client := r.source.Client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, 0, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, 0, fmt.Errorf("get %s: the server answered %d", address, resp.StatusCode)
	}
	return resp.Body, resp.ContentLength, nil
}
