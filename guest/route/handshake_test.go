package route

import (
	"strings"
	"testing"
)

func TestCountHandshakes(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   1: 0100007F:2328 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1
   2: 0200 0
   3: 020000C0:8000 00000000:0000 02 00000000:00000000 00:00000000 00000000     0        0 2
   4: 020000C0:8001 076433C6:0007 01 00000000:00000000 00:00000000 00000000     0        0 3
   5: 0100007F:8002 00000000:0000 02 00000000:00000000 00:00000000 00000000     0        0 4
   6: 020000C0:8003 076433C6:0007 03 00000000:00000000 00:00000000 00000000     0        0 5
`
	if n, err := countHandshakes(strings.NewReader(table)); n != 2 || err != nil {
		t.Errorf("got %d, %v, want 2", n, err)
	}
	const table6 = `  sl  local_address                         remote_address                        st
   2: 0000000000000000FFFF00000100007F:8002 00000000000000000000000000000000:0000 02
   3: 00000000000000000000000001000000:8002 00000000000000000000000000000000:0000 02
   4: 726562FD000068740000000002000000:8002 00000000000000000000000000000000:0000 02
   5: 0000000000000000FFFF0000020000C0:8002 00000000000000000000000000000000:0000 02
`
	if n, err := countHandshakes(strings.NewReader(table6)); n != 2 || err != nil {
		t.Errorf("IPv6: got %d, %v, want 2", n, err)
	}
	if n, err := countHandshakes(strings.NewReader("1: xx:1 00:0 02\n")); err == nil {
		t.Errorf("a bad address: got %d, want an error", n)
	}
}
