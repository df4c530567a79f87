package api_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/berth-run/berth/api/contract"
	"github.com/berth-run/berth/tool/program/javascript"
	"github.com/berth-run/berth/vectorstore/document"
)

// unserved are the operations of the contract that Berth does not serve, and why.
var unserved = map[string]string{"DELETE /models/{model}": "no models are trained here"}

// TestMain checks, after all tests, that they have seen a valid answer of every operation in
// the contract.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == document.Command { // started by a document.Child
		os.Exit(document.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == javascript.Command { // started by a javascript.Runner
		os.Exit(javascript.Main(os.Args[2:]))
	}
	os.Exit(run(m))
}

// run gives login shells an empty home: what this machine's user has set up may hang or fail.
func run(m *testing.M) int {
	home, err := os.MkdirTemp("", "berth-api-home")
	if err == nil {
		defer os.RemoveAll(home)
		err = os.Setenv("HOME", home)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if code == 0 && flag.Lookup("test.run").Value.String() == "" {
		for _, op := range contract.Unseen() {
			if _, known := unserved[op.String()]; !known {
				fmt.Fprintf(os.Stderr, "no test has seen a valid answer of %s\n", op)
				code = 1
			}
		}
	}
	return code
}
