package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A goClient is a client of OpenAI's API for Go, other than OpenAI's own, and its test
// in goclients.
type goClient struct{ name, file, test string }

var goClients = []goClient{
	{"github.com/sashabaranov/go-openai", "goopenai_test.go", "TestGoOpenAI"},
	{"github.com/tmc/langchaingo", "langchaingo_test.go", "TestLangChainGo"},
	{"github.com/cloudwego/eino-ext/components/model/openai", "eino_test.go", "TestEino"},
}

// TestClientsGo runs the tests of goclients, which is a module of its own.
func TestClientsGo(t *testing.T) {
	skipClient(t)
	list := exec.Command("go", "list", "-deps", "-test", ".")
	list.Dir, list.Env = "goclients", append(os.Environ(), "GOPROXY=off")
	if out, err := list.CombinedOutput(); err != nil {
		t.Skipf("skipped: the modules of goclients are not downloaded; make test-clients downloads them: %v\n%s", err,
			out)
	}
	test := filepath.Join(t.TempDir(), "goclients.test")
	build := exec.Command("go", "test", "-c", "-o", test, ".")
	build.Dir = "goclients"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, upstream := newUpstream(t)
	s := newServer(t, upstream...)
	for _, c := range goClients {
		t.Run(c.test, func(t *testing.T) {
			cmd := exec.Command(test, "-test.v", "-test.run", "^"+c.test+"$")
			cmd.Dir = "goclients"
			cmd.Env = append(os.Environ(), "OPENAI_BASE_URL="+s.url+"/v1", "OPENAI_API_KEY=none")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
