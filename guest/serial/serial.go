// Package serial carries connections between a keeper and a guest that share
// nothing but serial lines, as virtual machines have.
//
// A serial line cannot be hung up reliably: what one keeper was sending when it died
// stays on the line, half of it perhaps, and so does what the guest meant for it. So
// bytes travel in frames. A keeper begins with as many zeros as a frame may be long,
// in which an unfinished frame ends and fails its checksum, and with a frame that
// names a new connection; it takes for its own what follows the guest's repetition of
// that random name.
package serial
