// Command quic makes a QUIC connection to HOST:PORT with the server name NAME, sends a line on
// a stream, and prints the answer. It accepts any certificate.
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/net/quic"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	answer, err := ask(ctx, os.Args[1], os.Args[2])
	if err != nil {
		fmt.Println("refused:", err)
		os.Exit(1)
	}
	fmt.Println(answer)
}

func ask(ctx context.Context, addr, name string) (string, error) {
	endpoint, err := quic.Listen("udp", ":0", nil)
	if err != nil {
		return "", err
	}
	defer endpoint.Close(ctx)
	conn, err := endpoint.Dial(ctx, "udp", addr, &quic.Config{
		TLSConfig:        &tls.Config{ServerName: name, NextProtos: []string{"h3"}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13},
		HandshakeTimeout: 5 * time.Second,
	})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	stream, err := conn.NewStream(ctx)
	if err != nil {
		return "", err
	}
	stream.SetReadContext(ctx)
	stream.SetWriteContext(ctx)
	fmt.Fprintln(stream, "hello")
	stream.CloseWrite()
	answer, err := io.ReadAll(io.LimitReader(stream, 1<<10))
	return string(answer), err
}
