package server

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	dnsPort = "53"
	dnsAddr = "127.0.0.1:" + dnsPort
	// dnsTTL is the time, in seconds, for which an answer may be cached. Addresses stay
	// valid as long as the sandbox exists; the server decides each connection again.
	dnsTTL = 60
	// maxLookups is the number of simultaneous lookups. More are dropped, as datagrams may
	// be.
	maxLookups = 64
	// dnsIdle is the time after which a TCP connection without a query is closed.
	dnsIdle = 30 * time.Second
)

// serveDNS answers lookups on the loopback. A name that is not allowed does not exist; no
// resolver outside is queried for it.
func (n *network) serveDNS() error {
	packets, err := net.ListenPacket("udp", dnsAddr)
	if err != nil {
		return err
	}
	streams, err := net.Listen("tcp", dnsAddr)
	if err != nil {
		packets.Close()
		return err
	}
	busy := make(chan struct{}, maxLookups)
	go n.serveDatagrams(packets, busy)
	go n.serveStreams(streams, busy)
	return nil
}

func (n *network) serveDatagrams(conn net.PacketConn, busy chan struct{}) {
	buf := make([]byte, 512)
	for {
		size, from, err := conn.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		select {
		case busy <- struct{}{}:
		default:
			continue
		}
		query := append([]byte(nil), buf[:size]...)
		go func() {
			defer func() { <-busy }()
			if answer := n.answer(query); answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}()
	}
}

func (n *network) serveStreams(l net.Listener, busy chan struct{}) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		select {
		case busy <- struct{}{}:
		default:
			conn.Close()
			continue
		}
		go func() {
			defer func() { <-busy }()
			defer conn.Close()
			n.serveStream(conn)
		}()
	}
}

func (n *network) serveStream(conn net.Conn) {
	for {
		_ = conn.SetDeadline(time.Now().Add(dnsIdle))
		var size uint16
		if binary.Read(conn, binary.BigEndian, &size) != nil {
			return
		}
		query := make([]byte, size)
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		answer := n.answer(query)
		if answer == nil {
			return
		}
		_ = conn.SetDeadline(time.Now().Add(dnsIdle))
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))),
			answer...)); err != nil {
			return
		}
	}
}

// answer returns the answer to a query, or nil if the message is not a query.
func (n *network) answer(query []byte) []byte {
	var p dnsmessage.Parser
	head, err := p.Start(query)
	if err != nil || head.Response {
		return nil
	}
	question, err := p.Question()
	if err != nil {
		return reply(head, nil, dnsmessage.RCodeFormatError, netip.Addr{})
	}
	if head.OpCode != 0 || question.Class != dnsmessage.ClassINET {
		return reply(head, &question, dnsmessage.RCodeNotImplemented, netip.Addr{})
	}
	ctx, cancel := context.WithTimeout(context.Background(), outTime)
	defer cancel()
	addr, allowed, err := n.resolve(ctx, strings.ToLower(strings.TrimSuffix(question.Name.String(), ".")))
	switch {
	case err != nil:
		return reply(head, &question, dnsmessage.RCodeServerFailure, netip.Addr{})
	case !allowed:
		return reply(head, &question, dnsmessage.RCodeNameError, netip.Addr{})
	case question.Type != dnsmessage.TypeA:
		return reply(head, &question, dnsmessage.RCodeSuccess, netip.Addr{}) // the name exists, without such data
	}
	return reply(head, &question, dnsmessage.RCodeSuccess, addr)
}

func reply(head dnsmessage.Header, question *dnsmessage.Question, code dnsmessage.RCode, addr netip.Addr) []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: head.ID, Response: true, OpCode: head.OpCode,
		RecursionDesired: head.RecursionDesired, RecursionAvailable: true, RCode: code}}
	if question != nil {
		m.Questions = []dnsmessage.Question{*question}
	}
	if addr.IsValid() {
		m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: question.Name,
			Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: dnsTTL},
			Body: &dnsmessage.AResource{A: addr.As4()}}}
	}
	answer, err := m.Pack()
	if err != nil {
		return nil
	}
	return answer
}
