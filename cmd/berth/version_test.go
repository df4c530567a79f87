package main

import "testing"

// The hash of a build by go install MODULE@COMMIT is in its version.
func TestPseudoVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v0.0.0-20261123203133-cdbf39783457":         "cdbf39783457",
		"v0.2.1-0.20261123203133-cdbf39783457+dirty": "cdbf39783457",
		"v0.2.1":  "",
		"(devel)": "",
	} {
		got := ""
		if m := pseudoVersion.FindStringSubmatch(version); m != nil {
			got = m[2]
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", version, got, want)
		}
	}
}
