package console

import (
	"os"
	"testing"

	"github.com/berth-run/berth/console/markdown"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == markdown.Command { // started by markdown.Render
		os.Exit(markdown.Main())
	}
	os.Exit(m.Run())
}
