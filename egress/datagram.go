package egress

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"
)

// ProtocolHeader is the field of a CONNECT that asks for datagrams, with "udp". On
// the stream each of them follows its length in two bytes, most significant first.
const ProtocolHeader = "Berth-Protocol"

// datagramIdle ends an exchange of datagrams in which neither side says anything.
const datagramIdle = 2 * time.Minute

// datagrams are buffers for one with its length.
var datagrams = sync.Pool{New: func() any { b := make([]byte, 2+1<<16-1); return &b }}

// serveDatagrams carries datagrams to and from one address.
func (c *crossing) serveDatagrams(client *counted, host net.Conn) error {
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
				_, _ = host.Write(datagram) // one that cannot be sent is lost, as datagrams may be
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
