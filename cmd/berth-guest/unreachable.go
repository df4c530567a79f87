package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// attemptTime bounds one attempt to connect.
const attemptTime = 2 * time.Second

// reached is the exit code of unreachable if an address can be reached.
const reached = 3

// unreachable tries to connect to addresses for a time, and ends with the code reached if the last
// attempt to one of them succeeds. "kubernetes" is the API server as Pods see it.
func unreachable(duration string, addresses []string) error {
	limit, err := time.ParseDuration(duration)
	if err != nil {
		return err
	}
	for i, a := range addresses {
		if a == "kubernetes" {
			addresses[i] = net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
		}
	}
	for end := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		open := reachable(addresses)
		if len(open) == 0 {
			return nil
		}
		if time.Now().After(end) {
			fmt.Fprintln(os.Stderr, "reaches", strings.Join(open, " and "))
			os.Exit(reached)
		}
	}
}

// reachable returns those of the addresses to which a connection succeeds.
func reachable(addresses []string) (open []string) {
	reached := make([]bool, len(addresses))
	var attempts sync.WaitGroup
	for i, a := range addresses {
		attempts.Go(func() { reached[i] = connects(a) })
	}
	attempts.Wait()
	for i, a := range addresses {
		if reached[i] {
			open = append(open, a)
		}
	}
	return open
}

func connects(address string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), attemptTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
