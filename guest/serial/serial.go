// Package serial carries connections between the server and a guest over serial lines of a
// virtual machine.
//
// A serial line cannot be hung up reliably: partly sent data of a server process that died,
// and the guest's data for it, stay on the line. So bytes travel in frames. The server
// starts with as many zeros as a frame may be long, which end an unfinished frame with a
// wrong checksum, and then sends a frame with the random id of a new connection. The guest
// repeats the id, and the server skips everything before it.
package serial
