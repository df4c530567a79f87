package egress

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"
)

// ProtocolHeader is a header field of CONNECT that requests datagrams, with the value "udp". On
// the stream, two bytes with the length, most significant first, precede each datagram.
const ProtocolHeader = "Berth-Protocol"

// datagramIdle is how long an exchange of datagrams may be idle.
const datagramIdle = 2 * time.Minute

// datagrams holds buffers for a datagram with its length.
var datagrams = sync.Pool{New: func() any { b := make([]byte, 2+1<<16-1); return &b }}

// serveDatagrams forwards datagrams to and from one address.
func (c *crossing) serveDatagrams(client *countedConn, host net.Conn) error {
	idle := time.AfterFunc(datagramIdle, func() { client.Close(); host.Close() })
	defer idle.Stop()
	var both sync.WaitGroup
	both.Go(func() {
		defer host.Close()
		for {
			var size [2]byte
			if _, err := io.ReadFull(client, size[:]); err != nil {
				return
			}
			buf := datagrams.Get().(*[]byte)
			datagram := (*buf)[:binary.BigEndian.Uint16(size[:])]
			_, err := io.ReadFull(client, datagram)
			if err == nil {
				idle.Reset(datagramIdle)
				_, _ = host.Write(datagram) // datagrams may be lost
			}
			datagrams.Put(buf)
			if err != nil {
				return
			}
		}
	})
	both.Go(func() {
		defer client.Close()
		buf := datagrams.Get().(*[]byte)
		defer datagrams.Put(buf)
		for {
			n, err := host.Read((*buf)[2:])
			if err != nil {
				return
			}
			idle.Reset(datagramIdle)
			binary.BigEndian.PutUint16(*buf, uint16(n))
			if _, err := client.Write((*buf)[:2+n]); err != nil {
				return
			}
		}
	})
	both.Wait()
	return nil
}
