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

// serveDatagrams carries datagrams to and from one address.
func (c *crossing) serveDatagrams(client *counted, host net.Conn) error {
	idle := time.AfterFunc(datagramIdle, func() { client.Close(); host.Close() })
	defer idle.Stop()
	var both sync.WaitGroup
	both.Go(func() {
		defer host.Close()
		buf := busy.Get().(*[]byte)
		defer busy.Put(buf)
		for {
			if _, err := io.ReadFull(client, (*buf)[:2]); err != nil {
				return
			}
			datagram := (*buf)[:binary.BigEndian.Uint16(*buf)]
			if _, err := io.ReadFull(client, datagram); err != nil {
				return
			}
			idle.Reset(datagramIdle)
			_, _ = host.Write(datagram) // one that cannot be sent is lost, as datagrams may be
		}
	})
	both.Go(func() {
		defer client.Close()
		buf := busy.Get().(*[]byte)
		defer busy.Put(buf)
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
