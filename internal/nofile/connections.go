package nofile

// Connections are maximum numbers of connections to a server.
type Connections struct {
	Total             int
	PerAddress        int // of one source address
	WithoutKey        int // without a valid key
	WithoutKeyAddress int // without a valid key, of one source address
}

// maxTotal is the maximum of Connections.Total in DefaultConnections.
const maxTotal = 1 << 16

// DefaultConnections returns limits for a process that may open the given number of files.
// Half of the files may be connections, half of these without a key. The other half of
// the files is for the work of the requests.
func DefaultConnections(files int) Connections {
	total := max(min(files/2, maxTotal), 8)
	return Connections{Total: total, PerAddress: max(total*3/4, 4), WithoutKey: max(total/2, 4),
		WithoutKeyAddress: max(total/4, 2)}
}
