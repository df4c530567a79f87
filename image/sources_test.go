package image

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHostMirrors(t *testing.T) {
	const by = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
	for _, tc := range []struct {
		what  string
		files map[string]string
		want  []string
	}{
		{"deb822", map[string]string{"sources.list.d/debian.sources": `# a comment
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm
 bookworm-updates bookworm-backports
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
`}, []string{
			by + "http://mirror.example/debian bookworm main contrib",
			by + "http://mirror.example/debian bookworm-updates main contrib",
			by + "http://mirror.example/debian-security bookworm-security main",
		}},
		{"one line each", map[string]string{"sources.list": `deb http://mirror.example/debian bookworm main # here
# deb http://off.example/debian bookworm main
deb-src http://mirror.example/debian bookworm main
deb [ arch=amd64 signed-by=/usr/share/keyrings/debian-archive-bookworm-stable.gpg ] http://[::1]/debian bookworm main
`}, []string{
			"deb [signed-by=/usr/share/keyrings/debian-archive-bookworm-stable.gpg] http://[::1]/debian bookworm main",
			by + "http://mirror.example/debian bookworm main",
		}},
		{"others beside Debian", map[string]string{
			"sources.list":                  "deb http://mirror.example/debian bookworm main\n",
			"sources.list.d/docker.list":    "deb [signed-by=/etc/apt/keyrings/docker.asc] https://other.example/debian bookworm stable\n",
			"sources.list.d/vendor.list":    "deb [signed-by=/etc/apt/keyrings/vendor.gpg] https://vendor.example bookworm main\n",
			"sources.list.d/off.sources":    "Types: deb\nURIs: http://off.example\nSuites: bookworm\nComponents: main\nEnabled: no\n",
			"sources.list.d/inline.sources": "Types: deb\nURIs: http://inline.example\nSuites: bookworm\nComponents: main\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n",
			"sources.list.d/saved.list.bak": "deb http://bak.example/debian bookworm main\n",
		}, []string{by + "http://mirror.example/debian bookworm main"}},
		{"nothing", nil, []string{
			by + "http://deb.debian.org/debian bookworm main",
			by + "http://deb.debian.org/debian bookworm-updates main",
			by + "http://deb.debian.org/debian-security bookworm-security main",
		}},
	} {
		t.Run(tc.what, func(t *testing.T) {
			got, err := hostMirrors(tree(t, tc.files), "bookworm")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("mirrors (-want +got):\n%s", diff)
			}
		})
	}
}

// Any apt file yields sources of one line each that name a keyring.
func FuzzSources(f *testing.F) {
	f.Add("deb [signed-by=/k] http://a b main\n")
	f.Add("Types: deb\nURIs: http://a\nSuites: b\nComponents: main\nSigned-By:\n key\n")
	f.Add("deb [] x]")
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range append(stanzas(text), oneLiners(text)...) {
			if line := s.String(); s.ofDebian(s.suite) && (strings.ContainsAny(line, "\n\r") || !strings.HasPrefix(line,
				"deb [signed-by=/")) {
				t.Errorf("%q becomes %q", text, line)
			}
		}
	})
}
