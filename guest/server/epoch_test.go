package server

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"
)

// connectWith connects to epochs. The result reports whether the connection was admitted; ended is
// closed at its end.
func connectWith(t *testing.T, e *epochs, line string) (admitted bool, ended chan struct{}) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	go func() {
		if err := e.admit(theirs); err != nil {
			theirs.Close()
		}
	}()
	if _, err := io.WriteString(ours, line); err != nil {
		return false, nil // refused before its end
	}
	r := bufio.NewReader(ours)
	answer, err := r.ReadString('\n')
	if err != nil {
		return false, nil
	}
	if answer != EpochAccepted {
		t.Fatalf("got the answer %q", answer)
	}
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = r.ReadByte()
	}()
	return true, ended
}

// A connection with a higher epoch ends those with lower ones, which are refused from then on. Equal
// ones coexist.
func TestEpochs(t *testing.T) {
	e := &epochs{}
	var open []chan struct{}
	for range 2 {
		ok, ended := connectWith(t, e, EpochLine(3))
		if !ok {
			t.Fatal("the first epoch was refused")
		}
		open = append(open, ended)
	}
	if ok, _ := connectWith(t, e, EpochLine(2)); ok {
		t.Error("a lower epoch was admitted")
	}
	for _, ended := range open {
		select {
		case <-ended:
			t.Fatal("a connection ended without a higher epoch")
		default:
		}
	}
	ok, ended := connectWith(t, e, EpochLine(4))
	if !ok {
		t.Fatal("a higher epoch was refused")
	}
	for _, ended := range open {
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("a connection with a lower epoch did not end")
		}
	}
	if ok, _ := connectWith(t, e, EpochLine(3)); ok {
		t.Error("the former epoch was admitted again")
	}
	select {
	case <-ended:
		t.Error("the connection with the last epoch ended")
	default:
	}
}

// A value that is no epoch is refused.
func TestEpochLine(t *testing.T) {
	for _, line := range []string{"\n", "epoch\n", "epoch x\n", "epoch -1\n", "epoch 99999999999999999999\n",
		"GET / HTTP/1.1 and much more text\n"} {
		if ok, _ := connectWith(t, &epochs{}, line); ok {
			t.Errorf("%q was admitted", line)
		}
	}
}
