// Package serial carries connections between the server and a guest over serial lines of a
// virtual machine.
//
// A serial line cannot be hung up reliably: what one server process was sending when it died
// stays on the line, half of it perhaps, and so does what the guest meant for it. So
// bytes travel in frames. The server begins with as many zeros as a frame may be long,
// in which an unfinished frame ends and fails its checksum, and with a frame that
// names a new connection; it takes for its own what follows the guest's repetition of
// that random name.
package serial
