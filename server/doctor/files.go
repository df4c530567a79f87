package doctor

import (
	"fmt"

	"github.com/berth-run/berth/internal/nofile"
	"github.com/berth-run/berth/server/config"
)

// fewFiles is the file limit below which doctor gives advice.
const fewFiles = 8192

// openFiles reports the file limit, and the connections that it allows.
func openFiles() Finding {
	n := nofile.Limit()
	l := nofile.DefaultConnections(n)
	f := Finding{What: "open files", OK: true,
		Detail: fmt.Sprintf("%d: %d connections of clients, %d of them without a key; %d of containers", n, l.Total,
			l.WithoutKey, config.DefaultEgress())}
	if n < fewFiles {
		f.Advice = "this limits concurrent clients: set LimitNOFILE=65536 in the unit, or ulimit -n"
	}
	return f
}
